"""The elements of a page, and records with texts that try to add some."""

import base64
import hashlib
from html.parser import HTMLParser

from made_up import of_universal

EVIL = (
    "<script>window.struck=1</script>",
    "</script><img src=x onerror=window.struck=1>",
    "\"><svg onload='window.struck=1'>",
    "{{7*7}}{% raw %}$x^{",
    "line\nbreak\u2028\u2029",
    '<a href="javascript:window.struck=1">x</a>',
    "=cmd();$(id);`id`;$x^{",
    "../../etc/passwd\x00\x07",
    "<!--&lt;b&gt;",
)


def hostile(texts=EVIL):
    """Records with each of the texts in every text field."""
    named = "machine algorithm preset a b c mesh transport blas environment".split()
    known = {"best_s": 1e-3, "percent_of_gemm_only": 50.0}
    records = []
    for number, text in enumerate(texts):
        m = 64 << number % 2
        records.append(of_universal(m=m, **known | dict.fromkeys(named, text)))
        records.append(of_universal(m=m, **known, preset=text, b=text))
        records.append(of_universal(m=m, status="timeout", reason=text, algorithm=text))
    return records


class Elements(HTMLParser):
    """Every element with its attributes, and the texts of the scripts."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag == "script"
        self.scripts += [""] * self.inside

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data

    def check_safe(self):
        """One script of data and one that the policy admits, by its hash; nothing from
        elsewhere."""
        data, script = self.scripts
        (policy,) = (
            attrs["content"]
            for _, attrs in self.found
            if attrs.get("http-equiv") == "Content-Security-Policy"
        )
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert rules["script-src"] == f"'sha256-{digest}'" and rules["default-src"] == "'none'"
        assert "http" not in policy and not set("<>&") & set(data)
        for tag, attrs in self.found:
            assert not any(name.startswith("on") for name in attrs), tag
            for name in ("src", "href", "action", "data", "xlink:href"):
                assert attrs.get(name, "#").startswith(("#", "data:,")), (tag, attrs)

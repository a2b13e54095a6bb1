// What Sphinx's search uses (html_search_scorer). TEXTS are the pages, by name: texts.js of conf.py.

// A page opened as a file cannot fetch others, so the search gets their texts from here.
window.fetch = async (url) => ({
  text: async () => TEXTS[url.replace(/^\.\//, "").replace(/\.html$/, "")] ?? "",
});

const asked = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().trim();

/** Where a text has the words that are searched: all of them together, or else the first of them. */
const position = (text) => {
  const places = [asked, ...splitQuery(asked)].map((words) => text.toLowerCase().indexOf(words));
  return places.find((place) => place >= 0) ?? 0;
};

/** How much of a page is about what is searched, which its first lines tell best: 0 to 2. */
const weight = (page) => {
  const text = TEXTS[page].replace(/<[^>]*>/g, "").replace(/\s+/g, " ").toLowerCase();
  const times = text.split(asked).length - 1;
  return times / (times + 2 + text.length / 5000) + text.slice(0, 600).includes(asked);
};

var Scorer = {
  // Above all others are glossary entries, which have up to 100, and functions of that name.
  score: ([page, title, anchor, descr, score, file, kind]) => {
    if (kind === "text") return 8 * weight(page);
    return title.toLowerCase() === `drbench.${asked}` ? 100 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Sphinx's own summary looks for stems, which texts seldom have.
Search.makeSearchSummary = (html, stems, anchor) => {
  const text = Search.htmlToText(html, anchor).replace(/\s+/g, " ").trim();
  const at = position(text) - 120;
  const from = at > 0 ? text.indexOf(" ", at) + 1 : 0;
  const rest = text.slice(from, from + 240);
  const summary = document.createElement("p");
  summary.className = "context";
  summary.textContent =
    (from ? "… " : "") + (from + 240 < text.length ? rest.replace(/\S*$/, "…") : rest);
  return summary;
};

// Options and functions are found by their names: not once more by their entries in the index.
const performSearch = Search._performSearch;
Search._performSearch = (...words) =>
  performSearch(...words).filter(
    ([page, title, anchor, descr, score, file, kind]) =>
      kind !== "index" || anchor.startsWith("#term-"),
  );

"""The version and the commit, as a checkout, a clone, an archive and files alone tell them."""

import json
import os
import re
import runpy
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from packaging.version import Version

from benchmarks.pages.release import ADDRESS
from drbench.version import RELEASE, read_version

ROOT = Path(__file__).parents[1]
SOURCE = Path("drbench/version.py")
UNKNOWN = {"version": f"{RELEASE}.dev0", "commit": None, "dirty": False}


@pytest.fixture
def repository(tmp_path):
    """``repository(words)``: a command of git in a checkout with one commit; its output."""
    folder = tmp_path / "checkout"
    (folder / "drbench").mkdir(parents=True)
    for path in (SOURCE, ".gitattributes"):
        shutil.copy(ROOT / path, folder / path)

    def git(*words, folder=folder):
        command = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@y", *words]
        environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environ
        ).stdout.strip()

    git.folder, git.commit = folder, lambda: git("rev-parse", "HEAD")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    return git


def version_of(folder):
    """As ``setup.py`` reads it."""
    return runpy.run_path(str(folder / SOURCE))["read_version"]()


def archive(git, folder, *words):
    git("archive", "--output", folder / "a.tar", *words)
    with tarfile.open(folder / "a.tar") as file:
        file.extractall(folder / "archive", filter="data")
    return folder / "archive"


def test_a_tag_names_its_commit_and_later_ones_are_on_the_way_to_the_release(repository, tmp_path):
    commit = repository.commit()
    assert version_of(repository.folder) == {
        "version": f"{RELEASE}.dev0+g{commit[:8]}",
        "commit": commit,
        "dirty": False,
    }
    repository("tag", "v0.1.7rc1")
    repository("tag", "other")
    assert version_of(repository.folder)["version"] == "0.1.7rc1"
    (repository.folder / SOURCE).open("a").write("# changed\n")
    changed = version_of(repository.folder)
    assert changed == {"version": f"{RELEASE}.dev0+g{commit[:8]}", "commit": commit, "dirty": True}
    for _ in range(2):
        repository("commit", "--quiet", "--all", "--allow-empty", "--message", "later")
    later = repository.commit()
    assert version_of(repository.folder)["version"] == f"{RELEASE}.dev2+g{later[:8]}"
    repository("tag", "--annotate", "--message", "x", f"v{RELEASE}")
    assert version_of(repository.folder)["version"] == RELEASE
    assert Version(f"{RELEASE}.dev2+g{later[:8]}") < Version(RELEASE)


def test_clones_without_history_or_tags_know_their_commit(repository, tmp_path):
    repository("tag", "v0.1.7")
    repository("commit", "--quiet", "--allow-empty", "--message", "later")
    commit, address = repository.commit(), f"file://{repository.folder}"
    for options in (["--depth=1"], ["--no-tags"]):
        clone = tmp_path / options[0]
        repository("clone", "--quiet", *options, address, clone)
        assert version_of(clone) == {
            "version": f"{RELEASE}.dev0+g{commit[:8]}",
            "commit": commit,
            "dirty": False,
        }
    repository("clone", "--quiet", "--depth=1", "--branch=v0.1.7", address, tmp_path / "tagged")
    assert version_of(tmp_path / "tagged")["version"] == "0.1.7"


def test_an_archive_of_a_commit_keeps_its_version_without_git(repository, tmp_path):
    repository("tag", "v0.1.7")
    first = repository.commit()
    repository("commit", "--quiet", "--allow-empty", "--message", "later")
    for name, want in ((first, "0.1.7"), ("HEAD", f"{RELEASE}.dev1+g{repository.commit()[:8]}")):
        found = version_of(archive(repository, tmp_path, name))
        assert (found["version"], found["commit"]) == (want, repository("rev-parse", name))


def test_files_alone_have_the_version_of_their_build_or_say_that_no_commit_is_known(tmp_path):
    (tmp_path / "drbench").mkdir()
    shutil.copy(ROOT / SOURCE, tmp_path / SOURCE)
    assert version_of(tmp_path) == UNKNOWN
    built = {"version": "7.8", "commit": "of the build", "dirty": True}
    (tmp_path / "drbench/version.json").write_text(json.dumps(built))
    assert version_of(tmp_path) == built
    (tmp_path / ".git").mkdir()  # damaged, or git is absent
    assert version_of(tmp_path) == UNKNOWN


def test_citation_and_changelog_are_of_this_release():
    for name, line in {
        "CITATION.cff": "\nversion: (.+)\n",
        "CHANGELOG.md": r"\n## \[(.+)\] - ",
    }.items():
        assert re.search(line, (ROOT / name).read_text(encoding="utf-8"))[1] == RELEASE


def test_a_tagged_commit_is_that_release_with_a_date_and_a_real_address():
    version = read_version()["version"]
    if not Version(version).is_devrelease:
        assert version == RELEASE and "//example.org" not in ADDRESS
        assert "not released" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="not a checkout: there is no list of files"
)
def test_the_address_of_the_repository_is_in_one_place():
    """Pages have it from there."""
    written = re.compile(r"^<!-- docs: release\..*?^<!-- docs: end -->", re.M | re.S)
    words = ["git", "-C", ROOT, "grep", "-IlF", ADDRESS]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: written.sub("", (ROOT / name).read_text("utf-8")) for name in names}
    assert [name for name, text in texts.items() if ADDRESS in text] == ["pyproject.toml"]
    assert texts["pyproject.toml"].count(ADDRESS) == 1

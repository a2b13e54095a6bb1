// What Sphinx's search uses (html_search_scorer). TEXTS are the pages, by name: texts.js of conf.py.

// A page opened as a file cannot fetch others, so the search gets their texts from here.
window.fetch = async (url) => ({
  text: async () => TEXTS[url.replace(/^\.\//, "").replace(/\.html$/, "")] ?? "",
});

const asked = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().trim();

/** How often a page has what is searched, for its length: 0 to 1. */
const frequency = (page) => {
  const text = TEXTS[page].replace(/<[^>]*>/g, "").toLowerCase();
  const times = text.split(asked).length - 1;
  return times / (times + 2 + text.length / 5000);
};

var Scorer = {
  // Glossary entries have 100 and titles up to 16; pages are ordered by how often they have the words.
  score: ([page, title, anchor, descr, score, file, kind]) =>
    kind === "text" ? score + 9 * frequency(page) : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

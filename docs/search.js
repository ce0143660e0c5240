// The order of results of the site's search: pages that explain come before declarations.
Scorer = {
  objNameMatch: 11, // a name that is typed in full still comes first
  objPartialMatch: 0,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 12,
  term: 5,
  partialTerm: 2,
};

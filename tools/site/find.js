// The search: finder(index)(what was typed) -> {hits: [[score, entry, words]], whole, read}.
// Words are compared by their stems. A name from the glossary also finds the term's other names,
// in both languages; Chinese is compared by pairs of characters. Nothing here touches the page.
// Of two pages that say the same the one in the reader's language comes first: language is that of
// the page on which it was typed. Chinese words find Chinese pages on any of them.

function finder({ entries, terms, also }, language = "en") {
  const STOP = new Set(("a an and are as at be but by can could did do does for from had has have how i if in into is"
    + " it its me my not of on one or our should so than that the their them then there these they this to too"
    + " us use was we were what when where which who why will with would you your about much many get gets"
    + " difference between vs versus mean means").split(" "));
  const CHINESE_STOP = /什么是|是什么|为什么|怎么样|怎样|怎么|如何|什么|哪些|多少|可以|一个|需要|的|了|吗|呢|和|与|在|是/g;
  const KIND = { glossary: 0.8, lesson: 1, exercises: 0.6, other: 0.55 };
  const OTHER_LANGUAGE = 0.6;

  function stem(word) {
    if (/[^a-z]/.test(word) || word.length < 4) return word;
    let s = word.replace(/ies$/, "y").replace(/(x|ch|sh|ss)es$/, "$1").replace(/([^su])s$/, "$1");
    s = s.replace(/[iy][sz](e|ed|er|ing|ation)$/, "is");
    if (s.length > 6) s = s.replace(/(ion|ions)$/, "");
    if (s.length > 5) s = s.replace(/(ing|ed)$/, "").replace(/([bdgmnprt])\1$/, "$1");
    return s.length > 3 ? s.replace(/e$/, "") : s;
  }

  /** Stems of a text, and pairs of Chinese characters. */
  function tokens(text) {
    const found = [];
    const low = text.toLowerCase().replace(/(\d),(?=\d{3})/g, "$1").replace(/[’']s\b/g, "");
    for (const run of low.match(/[\u4e00-\u9fff]+|[a-z0-9_]+(?:\.\d+)*/g) ?? []) {
      if (run < "\u4e00") {
        found.push(stem(run));
        if (run.includes("_")) found.push(...run.split("_").filter(Boolean).map(stem));
      } else if (run.length === 1) found.push(run);
      for (let i = 0; run >= "\u4e00" && i + 1 < run.length; i += 1) found.push(run.slice(i, i + 2));
    }
    return found;
  }
  const counts = (text) => {
    const found = new Map();
    for (const token of tokens(text)) found.set(token, (found.get(token) ?? 0) + 1);
    return found;
  };

  const places = entries.map((entry) => ({
    entry, text: counts(entry.w), head: counts(entry.h), title: counts(entry.t), code: counts(entry.c ?? ""),
    size: Math.max(40, entry.w.length / 6),
  }));
  const spread = new Map(); // stem -> in how many places it stands
  for (const { text, head, title, code } of places) {
    for (const token of new Set([...text.keys(), ...head.keys(), ...title.keys(), ...code.keys()])) {
      spread.set(token, (spread.get(token) ?? 0) + 1);
    }
  }
  const vocabulary = [...spread.keys()];
  const mean = places.reduce((sum, { size }) => sum + size, 0) / Math.max(1, places.length);
  const rare = (token) => Math.log(1 + places.length / (spread.get(token) ?? places.length));

  // Names of terms as lists of stems, and what else each of them is called.
  const named = [];
  for (const [anchor, ...names] of terms) {
    for (const name of names) named.push({ name: tokens(name).join(" "), anchor, others: names });
  }
  const speaks = new Map(entries.map(({ u, l }) => [u, l]));
  for (const [typed, ours, ...pages] of also) {
    const own = pages.filter((page) => speaks.get(page) === language);
    named.push({ name: tokens(typed).join(" "), anchor: null, others: [ours], pages: own.length ? own : pages });
  }

  /** One letter more, less, other or swapped with its neighbour. */
  function near(one, other) {
    if (Math.abs(one.length - other.length) > 1 || one[0] !== other[0]) return false;
    let i = 0;
    while (i < one.length && one[i] === other[i]) i += 1;
    const [a, b] = [one.slice(i), other.slice(i)];
    return a.slice(1) === b || a === b.slice(1) || a.slice(1) === b.slice(1)
      || (a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2));
  }

  /** What is looked for: [{token, weight}] for each word, and the terms that were named. */
  function wanted(typed) {
    const low = typed.toLowerCase();
    let words = low.replace(/[\u4e00-\u9fff]+/g, (run) => run.replace(CHINESE_STOP, " ") || run);
    const heard = [];
    const kept = (words.match(/[\u4e00-\u9fff]+|[a-z0-9_.,'’-]+/g) ?? []).filter((word) => !STOP.has(word));
    words = kept.length ? kept.join(" ") : low;
    const all = [...new Set(tokens(words))];
    const some = all.filter((token) => token < "\u4e00" || spread.has(token)); // a pair across two words is none
    const asked = some.length ? some : all;
    const groups = asked.map((token, i) => {
      const last = i === asked.length - 1 && !/\s$/.test(typed);
      const group = new Map();
      if (spread.has(token)) group.set(token, 1);
      if (last && token.length > 1) { // it may still be on its way to a longer word
        const share = group.size ? 0.15 : 0.55;
        for (const known of vocabulary) if (known.startsWith(token) && known !== token) group.set(known, share);
      }
      if (!group.size && /^[a-z]{4,}$/.test(token)) {
        const close = vocabulary.filter((known) => near(token, known)).sort((x, y) => spread.get(y) - spread.get(x));
        if (close.length) { group.set(close[0], 0.8); heard.push([token, close[0]]); }
      }
      return group;
    });
    const joined = ` ${asked.join(" ")} `;
    const every = ` ${tokens(low).join(" ")} `;
    const found = new Map(); // the terms and pages that were named -> are they all that was typed?
    const told = named.filter(({ name }) => name && (joined.includes(` ${name} `) || every.includes(` ${name} `)));
    for (const { name, anchor, others, pages = [] } of told) {
      // "logit" in "logit lens" is no term of its own
      if (told.some((longer) => longer.anchor && longer.name !== name && ` ${longer.name} `.includes(` ${name} `))) continue;
      const own = new Set(name.split(" "));
      const share = own.size / Math.max(own.size, asked.length);
      for (const place of anchor ? [anchor] : pages) found.set(place, Math.max(found.get(place) ?? 0, share));
      // The words of the term's other names stand for those of this one, in their order: "prefix" and
      // "cache" for the two halves of 前缀缓存. A place that has only "cache" has met half of it.
      const spots = name.split(" ").map((token) => asked.indexOf(token)).filter((i) => i >= 0);
      for (const other of others) {
        const words = tokens(other).filter((token) => !STOP.has(token) && spread.has(token) && !own.has(token));
        const most = Math.max(words.length, spots.length);
        for (let n = 0; n < most; n += 1) {
          const group = groups[spots[Math.floor(n * spots.length / most)]];
          const word = words[Math.floor(n * words.length / most)];
          if (group && word && !group.has(word)) group.set(word, 0.6);
        }
      }
    }
    return { groups, found, heard };
  }

  return (typed) => {
    const { groups, found, heard } = wanted(typed);
    const hits = [];
    for (const { entry, text, head, title, code, size } of places) {
      let score = 0, met = 0;
      const words = new Set();
      for (const group of groups) {
        let best = 0;
        for (const [token, weight] of group) {
          const often = text.get(token) ?? 0;
          const value = 2.5 * often / (often + 0.4 + 0.8 * size / mean)
            + (head.has(token) ? 2.2 : 0) + (title.has(token) ? 1.4 : 0) + (code.has(token) ? 0.4 : 0);
          if (value) words.add(token);
          best = Math.max(best, weight * value * rare(token));
        }
        if (best) { score += best; met += 1; }
      }
      if (!met) continue;
      score *= KIND[entry.k];
      if (entry.k === "glossary" && found.has(entry.a)) score += 40 * found.get(entry.a) ** 2;
      if (!entry.a && found.has(entry.u)) score += 40 * found.get(entry.u) ** 2;
      score *= (met / groups.length) ** 2;
      if (entry.l !== language && !/[\u4e00-\u9fff]/.test(typed)) score *= OTHER_LANGUAGE;
      hits.push({ score, entry, words: [...words], whole: met === groups.length });
    }
    hits.sort((one, other) => other.score - one.score);
    const whole = hits.some((hit) => hit.whole);
    const shown = new Map();
    const kept = hits.filter(({ entry, score, whole: all }) => {
      const n = (shown.get(entry.u) ?? 0) + 1;
      shown.set(entry.u, n);
      return (all || !whole || score > hits[0].score / 3) && n <= (entry.k === "glossary" ? 3 : 4);
    });
    return { hits: kept, whole, heard };
  };
}

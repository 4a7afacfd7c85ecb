"use strict";
/* What is chosen, the controls that choose it, and the address that keeps it. */

(() => {
  const element = (id) => document.getElementById(id);
  const NONE = "none";
  const ZOOMS = ["1", "2", "4", "8", "16", "32", "all"];
  const ORDER = ["times", "busy", "shares", "window", "f", "queue"];
  const state = { e: "", a: "", b: NONE, s: "", l: "", j: 0, k: 0, z: "4" };
  let sides = []; // of each shown system: {label, seed, run, view, charts}
  let rows = []; // of charts: {quantity, found (of each side), top (of the scale)}
  let drawn = ""; // the choice that `sides` are of
  let drawing = 0;

  /* ---- the address ---- */

  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const key of Object.keys(state)) if (given.has(key)) state[key] = given.get(key);
    state.j = Math.trunc(Number(state.j)) || 0;
    state.k = Math.trunc(Number(state.k)) || 0;
    settle(given);
  }

  function writeAddress() {
    const address = `#${new URLSearchParams(Object.entries(state))}`;
    if (location.hash !== address) history.replaceState(null, "", address);
  }

  /** Make the choice one that the page can show; what was not given is the usual: the first baseline beside the first treatment. */
  function settle(given) {
    const experiment = chosenExperiment();
    state.e = experiment.name;
    const labels = experiment.systems.map((system) => system.label);
    const of = (role) => (experiment.systems.find((system) => (system.role === "treatment") === role) || {}).label;
    if (!labels.includes(state.a)) state.a = of(false) || labels[0];
    if (state.b !== NONE && (!labels.includes(state.b) || state.b === state.a)) state.b = NONE;
    if (given && !given.has("b")) state.b = labels.find((label) => label !== state.a && label === of(true)) || labels.find((label) => label !== state.a) || NONE;
    const seeds = chosenSystem(state.a).seeds.map((one) => String(one.seed));
    if (!seeds.includes(state.s)) state.s = seeds[0];
    if (!ZOOMS.includes(state.z)) state.z = "4";
  }

  const chosenExperiment = () => Runs.experiments.find((one) => one.name === state.e) || Runs.experiments[0];
  const chosenSystem = (label) => chosenExperiment().systems.find((one) => one.label === label);

  /* ---- views ---- */

  const firstJob = () => Charts.chosen(sides[0].run, { job: state.j, k: 0 }).job;

  /** The span of time of each side: as many iterations as are shown, equally long on all sides. */
  function view() {
    for (const side of sides) {
      const { job, k } = Charts.chosen(side.run, { job: state.j, k: state.k });
      const count = state.z === "all" ? job.ends.length : Math.min(Number(state.z), job.ends.length);
      const first = Math.min(Math.max(0, k - Math.floor((count - 1) / 2)), job.ends.length - count);
      side.view = { job: job.number, k, from: state.z === "all" ? 0 : job.begins[first], to: state.z === "all" ? side.run.end : job.ends[first + count - 1] };
    }
    const longest = Math.max(...sides.map((side) => side.view.to - side.view.from));
    for (const side of sides) side.view.to = side.view.from + longest;
  }

  const tops = () => rows.forEach((row) => { row.top = Charts.top(row.found, sides); });

  const link = (run) => run.links.find((one) => one.name === state.l) || run.links[0];

  /* ---- drawing ---- */

  async function show() {
    const ticket = ++drawing;
    const shown = [state.a, ...(state.b === NONE ? [] : [state.b])].map((label) => {
      const { seeds } = chosenSystem(label);
      return { label, seed: seeds.find((one) => String(one.seed) === state.s) || seeds[0] };
    });
    const choice = JSON.stringify([state.e, shown.map(({ label, seed }) => [label, seed.id]), state.l]);
    if (choice !== drawn) {
      document.body.dataset.state = "loading";
      const runs = await Promise.all(shown.map(({ seed }) => Runs.columns(seed.id)));
      if (ticket !== drawing) return; // something else was chosen meanwhile
      sides.forEach((side) => side.charts.forEach((chart) => chart.destroy()));
      sides = shown.map((one, k) => ({ ...one, run: runs[k], charts: [] }));
      if (!sides[0].run.links.some((one) => one.name === state.l)) state.l = link(sides[0].run).name;
      drawn = JSON.stringify([state.e, shown.map(({ label, seed }) => [label, seed.id]), state.l]);
      state.j = firstJob().number;
      clampIteration();
      view();
      layOut();
    } else {
      clampIteration();
      view();
      tops();
      for (const side of sides) for (const chart of side.charts) chart.setData(chart.data);
    }
    controls();
    table();
    writeAddress();
    document.body.dataset.state = "ready";
  }

  function clampIteration() {
    const last = Math.max(...sides.map((side) => Charts.chosen(side.run, { job: state.j, k: 0 }).job.ends.length)) - 1;
    state.k = Math.min(Math.max(0, state.k), last);
    element("iteration").max = last;
  }

  function make(name, words, ...children) {
    const made = document.createElement(name);
    Object.assign(made, words);
    made.append(...children);
    return made;
  }

  function swatch(number) {
    const made = make("span", { className: "swatch" });
    made.style.background = Charts.colour(number);
    return made;
  }

  function layOut() {
    const charts = element("charts");
    charts.replaceChildren();
    charts.className = sides.length > 1 ? "two" : "one";
    if (sides.some((side) => side.run.jobs.length > 6)) charts.classList.add("many");
    for (const [k, side] of sides.entries()) {
      const found = Runs.worst(side.run);
      const worst = make("button", { type: "button", className: "worst", title: `Jump to the worst iteration (${k ? "W" : "w"})` },
        `Worst: iteration ${found.k} of job ${found.job.number}, ${found.job.lasts[found.k].toPrecision(3)} s`);
      worst.addEventListener("click", () => toWorst(k));
      const pill = make("span", { className: `pill ${side.seed.verdict}`, title: side.seed.because }, side.seed.verdict);
      const title = make("h2", {}, side.label);
      const other = String(side.seed.seed) === state.s ? "" : ` (it has no seed ${state.s})`;
      charts.append(make("div", { className: "side" }, title, pill, worst, make("p", { className: "setting" }, `Seed ${side.seed.seed}${other}; ${k && side.seed.setting === sides[0].seed.setting ? "same setting" : side.seed.setting}`)));
    }
    rows = ORDER.map((quantity) => ({ quantity, found: sides.map((side) => Charts.QUANTITIES[quantity].of(side.run, link(side.run))), top: 1 }));
    tops();
    for (const row of rows) {
      const { title, unit } = Charts.QUANTITIES[row.quantity];
      const [noun, factor] = unit ? unit(Math.max(...row.found.map(({ highest, fixed }) => fixed || Math.max(0, ...(highest || []).map(Charts.most))))) : ["", 1];
      if (row.found.every((one) => one.none)) {
        charts.append(make("p", { className: "note missing" }, make("strong", {}, title(link(sides[0].run), noun)), `: ${row.found[0].none}`));
        continue;
      }
      for (const [k, side] of sides.entries()) {
        const name = title(link(side.run), noun);
        const values = make("p", { className: "values" });
        const place = make("div", { className: "chart" });
        const heading = make("h3", {}, make("span", { className: "whose" }, `${side.label}: `), name);
        charts.append(make("div", { className: `cell ${row.quantity}` }, make("div", { className: "caption" }, heading, values), place));
        if (row.found[k].none) {
          place.append(make("p", { className: "note" }, `${row.found[k].none[0].toUpperCase()}${row.found[k].none.slice(1)}.`));
          continue;
        }
        side.charts.push(Charts.make(place, row.quantity, row.found[k], side.run, {
          factor, label: `${name}, ${side.label}`, view: () => side.view, top: () => row.top,
          said: (words) => say(values, words), heard: (time) => toTime(side, time),
        }));
      }
    }
    const bins = [...new Set(sides.map((side) => `${Charts.digits(side.run.bin * 1000)} ms`))].join(" and ");
    const less = sides.map((side) => side.run.leftOut).find(Boolean);
    element("bins").textContent = `A time bin is ${bins} long.${less ? ` Samples of ${less} are left out.` : ""}`;
  }

  function say(place, words) {
    place.replaceChildren();
    if (!words) return;
    place.append(make("span", { className: "at" }, `${words.time.toFixed(3)} s`));
    for (const { number, text } of words.values) {
      place.append(make("span", {}, ...(number === undefined ? [] : [swatch(number), text ? `${number}: ` : number]), text));
    }
  }

  /* ---- controls ---- */

  function options(select, found, value) {
    const wanted = found.map(([name, text]) => `${name}\n${text}`).join("\n\n");
    if (select.dataset.options !== wanted) {
      select.replaceChildren(...found.map(([name, text]) => new Option(text, name)));
      select.dataset.options = wanted;
    }
    select.value = value;
  }

  function controls() {
    const labels = chosenExperiment().systems.map((system) => [system.label, system.label]);
    options(element("experiment"), Runs.experiments.map((one) => [one.name, one.name]), state.e);
    options(element("system"), labels, state.a);
    options(element("other"), [[NONE, "nothing"], ...labels.filter(([label]) => label !== state.a)], state.b);
    options(element("seed"), chosenSystem(state.a).seeds.map((one) => [one.seed, one.seed]), state.s);
    const links = sides[0].run.links.map((one) => [one.name, one.name ? Charts.arrow(one.name) : "all"]);
    options(element("link"), links, state.l);
    element("link-label").hidden = links.length < 2;
    options(element("job"), sides[0].run.jobs.map((job) => [job.number, `job ${job.number} (${job.trace})`]), state.j);
    options(element("zoom"), ZOOMS.map((one) => [one, one === "all" ? "all iterations" : one === "1" ? "1 iteration" : `${one} iterations`]), state.z);
    const slider = element("iteration");
    slider.value = state.k;
    slider.setAttribute("aria-valuetext", `iteration ${state.k} of job ${state.j}`);
    element("number").textContent = `${state.k} of 0–${slider.max}`;
    element("previous").disabled = state.k === 0;
    element("next").disabled = state.k === Number(slider.max);
    element("status").textContent = `Iteration ${state.k}. ` + sides.map((side) => {
      const { job, k } = Charts.chosen(side.run, side.view);
      return `${side.label}: job ${job.number} ${Charts.digits(job.lasts[k])} s`;
    }).join(". ");
  }

  function table() {
    const cell = (name, ...children) => make(name, {}, ...children);
    const head = sides.flatMap((side) => [`${side.label} (s)`, "÷ ideal"]);
    const rows = sides[0].run.jobs.map((job) => {
      const cells = sides.flatMap((side) => {
        const mine = side.run.jobs.find((one) => one.number === job.number);
        const last = mine && mine.lasts[state.k];
        if (last === undefined) return ["–", "–"];
        return [last.toFixed(last < 0.1 ? 4 : 3), mine.ideal ? (last / mine.ideal).toFixed(2) : "–"];
      });
      const name = make("th", { scope: "row" }, swatch(job.number), `job ${job.number} `, make("span", { className: "soft" }, job.trace));
      return make("tr", {}, name, ...cells.map((text) => cell("td", text)));
    });
    element("numbers-title").textContent = `Iteration ${state.k} of every job`;
    element("numbers").replaceChildren(
      make("thead", {}, make("tr", {}, cell("th", "Job"), ...head.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows),
    );
  }

  /** Show the choice with `changes`; what these leave open is the usual where `anew`. */
  function choose(changes, anew) {
    Object.assign(state, changes);
    settle(anew && new URLSearchParams());
    show();
  }

  const toIteration = (k) => choose({ k });

  function toWorst(which) {
    if (!sides[which]) return;
    const { job, k } = Runs.worst(sides[which].run);
    choose({ j: job.number, k });
  }

  function toTime(side, time) {
    const { job } = Charts.chosen(side.run, side.view);
    const k = job.ends.findIndex((end) => end > time);
    toIteration(k < 0 ? job.ends.length - 1 : k);
  }

  function zoom(steps) {
    const next = ZOOMS[ZOOMS.indexOf(state.z) + steps];
    if (next) choose({ z: next });
  }

  function compare() {
    const others = chosenExperiment().systems.map((system) => system.label).filter((label) => label !== state.a);
    choose({ b: state.b === NONE ? others[0] || NONE : NONE });
  }

  /** Move the time cursor by so many hundredths of what is shown. */
  function moveCursor(steps) {
    const chart = sides[0].charts.find((one) => one.cursor.sync && one.cursor.sync.key === "time");
    if (!chart) return;
    const wide = chart.over.clientWidth;
    const now = chart.cursor.left >= 0 ? chart.cursor.left : wide / 2;
    chart.setCursor({ left: Math.min(Math.max(0, now + (steps * wide) / 100), wide - 1), top: 1 }, true, true);
  }

  const KEYS = {
    ArrowLeft: () => toIteration(state.k - 1), ArrowRight: () => toIteration(state.k + 1),
    PageUp: () => toIteration(state.k - 10), PageDown: () => toIteration(state.k + 10),
    Home: () => toIteration(0), End: () => toIteration(Number(element("iteration").max)),
    w: () => toWorst(0), W: () => toWorst(1), "+": () => zoom(-1), "=": () => zoom(-1), "-": () => zoom(1),
    ",": () => moveCursor(-1), ".": () => moveCursor(1), c: compare,
    x: () => state.b !== NONE && choose({ a: state.b, b: state.a }),
    "?": () => { element("help").open = !element("help").open; if (element("help").open) element("help").scrollIntoView({ block: "nearest" }); },
  };

  function listen() {
    const on = (id, change) => element(id).addEventListener("change", (event) => change(event.target.value));
    on("experiment", (e) => choose({ e, a: "", s: "", l: "", j: 0, k: 0 }, true));
    on("system", (a) => choose({ a, b: state.b === a ? state.a : state.b }));
    on("other", (b) => choose({ b }));
    on("seed", (s) => choose({ s }));
    on("link", (l) => choose({ l }));
    on("job", (j) => choose({ j: Number(j) }));
    on("zoom", (z) => choose({ z }));
    element("iteration").addEventListener("input", (event) => toIteration(Number(event.target.value)));
    element("previous").addEventListener("click", KEYS.ArrowLeft);
    element("next").addEventListener("click", KEYS.ArrowRight);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
      if (event.target.matches("select") || (event.target.matches("input") && event.key.length > 1)) return;
      event.preventDefault();
      KEYS[event.key]();
    });
    addEventListener("hashchange", () => { readAddress(); show(); });
    new ResizeObserver(() => sides.forEach((side) => side.charts.forEach((chart) => {
      const width = chart.root.parentElement.clientWidth;
      if (width && width !== chart.width) chart.setSize({ width, height: chart.height });
    }))).observe(element("charts"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawn = ""; show(); });
  }

  if (typeof DecompressionStream === "undefined") {
    element("charts").append(make("p", { className: "note" }, "This browser cannot decompress the data. Use one from 2023 or later."));
    return;
  }
  element("help").open = innerWidth > 1000; // there is room beside the table
  listen();
  readAddress();
  show();
})();

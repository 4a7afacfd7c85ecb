"use strict";
/* One chart for each quantity, drawn with uPlot. A chart knows its run, and the view: the span of time that is shown, and the
   iteration that is chosen. */

const Charts = (() => {
  const HEIGHT = { times: 104, busy: 40, shares: 132, window: 112, f: 92, queue: 100 };
  const ROW = 12; // height of each job's row
  const BACKGROUND = "background"; // besides the jobs, in what a link carries
  const AXIS = 54; // width of the vertical axis
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;

  /** Of a job by its number, or of background traffic. */
  function colour(number) {
    if (number === BACKGROUND) return css("--line-strong");
    const found = Runs.palette[number % Runs.palette.length];
    return found === "#000000" && dark() ? "#f2f2f2" : found;
  }
  const dash = (number) => (number < Runs.palette.length ? undefined : [6, 3]);
  const faint = (hex) => `${hex}33`;
  const digits = (value) => (value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3))));
  const arrow = (name) => name.replace("-", " → ");
  const most = (values) => values.reduce((top, one) => (one !== null && one > top ? one : top), 0);

  const spreadLines = (found, number) => [
    { values: found.low, number, edge: true }, { values: found.high, number, edge: true },
    { values: found.mean, number, banded: found.banded },
  ];

  /** What is sampled of each job's flows over a link; `none` says why there is nothing. */
  function sampled(byJob, none) {
    if (!byJob || !byJob.size) return { none };
    const found = [...byJob];
    return { lines: found.flatMap(([number, values]) => spreadLines(values, number)), highest: found.map(([, { high }]) => high), room: 1.05 };
  }

  /* What a quantity has of a run and a link. `lines`: {values, number of the job}; `highest`: columns whose largest value is
     the least top of the scale, times `room`; `fixed`: the top instead; `none`: why there is nothing. */
  const QUANTITIES = {
    times: {
      title: () => "Iteration times, whole run (s)",
      of: (run) => {
        const every = run.jobs.flatMap((job) => job.ends.map((end, k) => ({ end, k, job })));
        every.sort((a, b) => a.end - b.end);
        const lines = run.jobs.map((job) => ({ values: every.map((one) => (one.job === job ? job.lasts[one.k] : null)), number: job.number, dots: true }));
        return { lines, time: every.map((one) => one.end), fixed: Math.max(...run.jobs.flatMap((job) => job.lasts)) * 1.08, whole: true };
      },
    },
    busy: {
      title: () => "Communication of each job",
      of: (run) => ({ rows: run.jobs, lines: [], fixed: run.jobs.length }),
    },
    shares: {
      title: (link, unit) => `${over(link)}: rates (${unit}${link.carried.has(BACKGROUND) ? "; background in grey" : ""})`,
      unit: (top) => (top >= 5e9 ? ["Gbit/s", 1e9] : top >= 5e5 ? ["Mbit/s", 1e6] : ["kbit/s", 1e3]),
      of: (run, link) => {
        const parts = [...run.jobs.map((job) => job.number), BACKGROUND].filter((number) => link.carried.has(number));
        if (!parts.length) return { none: "no samples" };
        const sums = [];
        for (const number of parts) {
          const below = sums[sums.length - 1];
          sums.push(link.carried.get(number).map((value, k) => (value || 0) + (below ? below[k] : 0)));
        }
        const fixed = Math.max(0, ...link.rates.map(([, rate]) => rate)) || most(sums[sums.length - 1]);
        const lines = parts.map((number, k) => ({ values: sums[k], said: link.carried.get(number), number })).reverse();
        return { lines, fixed: fixed * 1.08, stacked: true, rates: link.rates };
      },
    },
    window: {
      title: (link) => `Windows${link.name ? ` over ${arrow(link.name)}` : ""} (segments)`,
      of: (run, link) => sampled(link.windows, "no windows, since these flows are not TCP sockets"),
    },
    f: {
      title: () => "MLTCP's factor F",
      of: (run, link) => sampled(link.factors, run.jobs.some((job) => /mltcp/.test(job.congestion)) ? "no F, since MLTCP was not active" : "no F, since no job has MLTCP"),
    },
    queue: {
      title: (link, unit) => `Queue of ${link.name ? arrow(link.name) : "the link"} (${unit})`,
      unit: (top) => (top >= 2e6 ? ["MB", 1e6] : ["kB", 1e3]),
      of: (run, link) => {
        if (!link.queue) return { none: "no samples" };
        return { lines: spreadLines(link.queue), highest: [link.queue.high], room: 1.25, drops: link.drops, marks: link.marks };
      },
    },
  };

  const over = (link) => (link.name ? `Link ${arrow(link.name)}` : "All links");

  /** The top of a scale that has room for all that the charts show: 1, 1.5, 2, 3, 5 or 7 times a power of ten. */
  function top(found, sides) {
    const needed = Math.max(...found.map((of, k) => {
      if (of.none) return 0;
      if (of.fixed) return of.fixed;
      const { view, run } = sides[k];
      const [from, to] = [Math.floor(view.from / run.bin), Math.ceil(view.to / run.bin) + 1];
      return of.room * Math.max(...of.highest.map((values) => most(values.slice(Math.max(0, from), to))));
    }));
    if (!needed || found.some((of) => of.fixed)) return needed || 1;
    const power = 10 ** Math.floor(Math.log10(needed));
    return power * [1, 1.5, 2, 3, 5, 7, 10].find((step) => step * power >= needed * 0.9999);
  }

  /** Steps that hold their value until the next; fills what is below where `filled`. */
  function series(line, of) {
    if (of.stacked) {
      return { paths: uPlot.paths.stepped({ align: 1 }), fill: colour(line.number), width: 0, points: { show: false } };
    }
    const stroke = line.number === undefined ? css("--soft") : colour(line.number);
    if (line.edge) return { stroke: "transparent", width: 0, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), spanGaps: true };
    return {
      stroke, width: line.dots ? 1 : 1.6, dash: line.number === undefined ? undefined : dash(line.number), spanGaps: true,
      points: line.dots ? { show: true, size: 5, fill: stroke, width: 0 } : { show: false },
      paths: line.dots ? undefined : uPlot.paths.stepped({ align: 1 }),
    };
  }

  const bands = (lines) => lines.flatMap((line, k) => (
    line.banded ? [{ series: [k, k - 1], fill: faint(line.number === undefined ? css("--soft") : colour(line.number)) }] : []
  ));

  /** The job whose iteration is chosen, its number and its span of time. */
  const chosen = (run, view) => {
    const job = run.jobs.find((one) => one.number === view.job) || run.jobs[0];
    const k = Math.min(view.k, job.ends.length - 1);
    return { job, k, from: job.begins[k], to: job.ends[k] };
  };

  function drawBelow(u, of, run, view) {
    const { ctx, bbox } = u;
    const x = (time) => Math.min(Math.max(u.valToPos(time, "x", true), bbox.left), bbox.left + bbox.width);
    const { job, from, to } = chosen(run, view);
    ctx.save();
    ctx.fillStyle = css("--chosen");
    if (of.whole) {
      ctx.fillRect(x(view.from), bbox.top, Math.max(2, x(view.to) - x(view.from)), bbox.height);
      ctx.fillStyle = css("--chosen-edge");
      ctx.fillRect(x(from), bbox.top, Math.max(2, x(to) - x(from)), bbox.height);
    } else {
      ctx.fillRect(x(from), bbox.top, x(to) - x(from), bbox.height);
      ctx.fillStyle = css("--line-strong");
      for (const begin of [...job.begins, job.ends[job.ends.length - 1]]) {
        if (begin >= view.from && begin <= view.to) ctx.fillRect(Math.round(x(begin)), bbox.top, 1, bbox.height);
      }
    }
    ctx.restore();
  }

  function drawAbove(u, of, run, view) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio || 1;
    const x = (time) => u.valToPos(time, "x", true);
    const y = (value) => u.valToPos(value, "y", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (of.rows) {
      const high = bbox.height / of.rows.length;
      of.rows.forEach((job, row) => {
        ctx.fillStyle = colour(job.number);
        for (const [begin, end] of job.busy) {
          if (end >= view.from && begin <= view.to) {
            ctx.fillRect(x(begin), bbox.top + row * high + high * 0.15, Math.max(ratio, x(end) - x(begin)), high * 0.7);
          }
        }
      });
    }
    if (of.rates && of.rates.length) {
      ctx.strokeStyle = css("--ink");
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath();
      of.rates.forEach(([begin, rate], k) => {
        const until = k + 1 < of.rates.length ? of.rates[k + 1][0] : run.end;
        ctx.moveTo(x(Math.max(begin, view.from)), y(rate / of.factor));
        ctx.lineTo(x(Math.min(until, view.to)), y(rate / of.factor));
      });
      ctx.stroke();
    }
    for (const [values, mark, at] of [[of.marks, "--mark", 4], [of.drops, "--drop", 0]]) {
      if (!values) continue;
      ctx.fillStyle = css(mark);
      values.forEach((count, k) => {
        const time = run.time[k];
        if (count && time >= view.from && time <= view.to) {
          ctx.fillRect(x(time) - ratio, bbox.top + at * ratio, 2 * ratio, (at ? 3 : 8) * ratio);
        }
      });
    }
    ctx.restore();
  }

  /** A chart in `place` of what `of` holds. `view()` and `top()` are what is shown now, in seconds and in the unit of `factor`;
      `heard(time)` is called where the whole run is clicked, `said(words)` when the time cursor moves. */
  function make(place, quantity, of, run, { view, top, factor, heard, said, label }) {
    of.factor = factor;
    const lines = of.lines.map((line) => (factor === 1 ? line.values : line.values.map((one) => (one === null ? null : one / factor))));
    const time = of.time || run.time;
    const text = css("--soft");
    const axis = { stroke: text, font: "11px system-ui, sans-serif", grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
    const u = new uPlot({
      width: place.clientWidth, height: HEIGHT[quantity] + (of.rows ? ROW * of.rows.length : 0), padding: [8, 8, 0, 0], legend: { show: false },
      scales: {
        x: { time: false, range: () => (of.whole ? [0, run.end] : [view().from, view().to]) },
        y: { range: () => [0, top() / factor] },
      },
      cursor: {
        drag: { x: false, y: false }, y: false, points: { show: false },
        ...(of.whole ? {} : { sync: { key: "time", scales: [null, null] } }),
      },
      axes: [
        { ...axis, size: 22, space: 60, gap: 4, values: (_, ticks) => ticks.map((one) => `${Number(one.toFixed(6))} s`) },
        {
          ...axis, size: AXIS, space: 24, gap: 5,
          ...(of.rows ? { splits: () => of.rows.map((_, k) => of.rows.length - k - 0.5), values: () => of.rows.map((job) => `job ${job.number}`), grid: { show: false } } : {}),
        },
      ],
      series: [{}, ...of.lines.map((line) => series(line, of))],
      bands: bands(of.lines),
      hooks: {
        drawClear: [(one) => drawBelow(one, of, run, view())],
        draw: [(one) => drawAbove(one, of, run, view())],
        setCursor: [(one) => said(words(one.cursor.idx))],
        setScale: [(one, axis) => { if (axis === "x") place.dataset.span = `${one.scales.x.min} ${one.scales.x.max}`; }],
      },
    }, [time, ...lines], place);
    u.root.setAttribute("role", "img");
    u.root.setAttribute("aria-label", label);

    /** What the chart shows at a place of its time axis: [{number, text}]. */
    function words(at) {
      if (at === null || at === undefined) return null;
      const value = (values) => (values[at] === null || values[at] === undefined ? "–" : digits(values[at] / factor));
      const found = of.lines.filter((line) => !line.edge && (!of.whole || line.values[at] !== null))
        .map((line) => ({ number: line.number, text: value(line.said || line.values) }));
      if (of.stacked) found.reverse();
      if (of.rows) {
        const now = run.time[at];
        for (const job of of.rows) {
          if (job.busy.some(([begin, end]) => begin <= now && now < end)) found.push({ number: job.number, text: "" });
        }
      }
      if (of.drops && of.drops[at]) found.push({ text: `${of.drops[at]} drops` });
      if (of.marks && of.marks[at]) found.push({ text: `${of.marks[at]} marks` });
      return { time: time[at], values: found };
    }

    if (of.whole) {
      const at = (event) => heard(u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x"));
      u.over.style.touchAction = "pan-y";
      u.over.addEventListener("pointerdown", (event) => { u.over.setPointerCapture(event.pointerId); at(event); });
      u.over.addEventListener("pointermove", (event) => { if (event.buttons) at(event); });
    }
    return u;
  }

  return { QUANTITIES, make, top, most, colour, digits, arrow, chosen };
})();

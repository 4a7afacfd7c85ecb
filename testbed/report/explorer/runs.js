"use strict";
/* The runs that the page holds: an index, and of each run its columns, decompressed when they are needed. */

const Runs = (() => {
  const element = (id) => document.getElementById(id);
  const index = JSON.parse(element("index").textContent);
  const pending = new Map();

  const numbers = (column) => column && column.values.map((one) => (one === null ? null : one * column.scale));

  const spread = (found) => {
    if (!found) return null;
    const mean = numbers(found.mean);
    return { mean, low: numbers(found.low) || mean, high: numbers(found.high) || mean, banded: Boolean(found.low) };
  };

  const median = (values) => values.slice().sort((a, b) => a - b)[Math.floor(values.length / 2)];

  function job(found) {
    const ends = numbers(found.ends);
    const begins = [found.begin, ...ends.slice(0, -1)];
    const lasts = ends.map((end, k) => end - begins[k]);
    const [from, to] = found.busy.map(numbers);
    return {
      number: found.job, trace: found.trace, congestion: found.congestion, ideal: found.ideal_s, begins, ends, lasts,
      reference: found.ideal_s || median(lasts), busy: from.map((begin, k) => [begin, to[k]]),
    };
  }

  function link(found) {
    const byJob = (columns, read) => new Map(Object.entries(columns).map(([number, column]) => [number === "background" ? number : Number(number), read(column)]));
    return {
      name: found.name, rates: found.rates, carried: byJob(found.carried, numbers), windows: byJob(found.windows, spread),
      factors: byJob(found.factors, spread), queue: spread(found.queue), drops: numbers(found.drops), marks: numbers(found.marks),
    };
  }

  async function decompress(id) {
    const packed = Uint8Array.from(atob(element(`run-${id}`).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const found = await new Response(stream).json();
    const jobs = found.jobs.map(job);
    return {
      time: Array.from({ length: found.bins }, (_, k) => k * found.bin_s), bin: found.bin_s, jobs, links: found.links.map(link),
      end: Math.max(found.bins * found.bin_s, ...jobs.map((one) => one.ends[one.ends.length - 1])), leftOut: found.left_out,
    };
  }

  /** The columns of a run, by its place in the page. */
  function columns(id) {
    if (!pending.has(id)) pending.set(id, decompress(id));
    return pending.get(id);
  }

  /** The longest iteration of a run relative to its job's reference: {job, k}. */
  function worst(run) {
    let found = { job: run.jobs[0], k: 0 };
    const slowdown = ({ job, k }) => job.lasts[k] / job.reference;
    for (const job of run.jobs) job.lasts.forEach((_, k) => { if (slowdown({ job, k }) > slowdown(found)) found = { job, k }; });
    return found;
  }

  return { experiments: index.experiments, palette: element("palette").textContent.trim().split(" "), columns, worst };
})();

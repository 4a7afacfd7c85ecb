// SPDX-License-Identifier: BSD-3-Clause
#include "bbr.h"

#include "bytes.h"

#define HIGH_GAIN 2885 /* 2 / ln 2, in thousandths */
#define DRAIN_GAIN 347
#define WINDOW_GAIN 2000
#define PROBE_RTT_NS (200 * 1000000ULL)
#define LEAST_WINDOW 4

static const uint32_t cycle_gain[] = { 1250, 750, 1000, 1000, 1000, 1000, 1000, 1000 };

#define CYCLE (sizeof(cycle_gain) / sizeof(*cycle_gain))

void bbr_init(struct congestion *cc, uint32_t draw)
{
	cc->bbr.cycle = 2 + draw % (CYCLE - 2);
}

uint64_t bbr_pacing_rate(const struct congestion *cc)
{
	uint64_t bandwidth = path_bandwidth(&cc->path);
	uint64_t gain = 1000;

	/* A sender of a few bytes now and then has measured itself: it starts as it would at first. */
	if (!cc->path.filled) {
		uint64_t first = path_rate_of(&cc->path, PATH_FIRST_WINDOW * (uint64_t)cc->path.packet);

		if (bandwidth < first)
			bandwidth = first;
	}
	if (cc->bbr.mode == BBR_STARTUP)
		gain = HIGH_GAIN;
	else if (cc->bbr.mode == BBR_DRAIN)
		gain = DRAIN_GAIN;
	else if (cc->bbr.mode == BBR_PROBE_BW)
		gain = 1000 + ((int64_t)cycle_gain[cc->bbr.cycle] - 1000) * cc->probe_permille / 1000;
	bandwidth = muldiv(bandwidth, gain, 1000);
	return bandwidth ? bandwidth : 1;
}

uint64_t bbr_window(const struct congestion *cc)
{
	const struct path *path = &cc->path;
	uint64_t least = LEAST_WINDOW * (uint64_t)path->packet;
	uint64_t window, bandwidth = path_bandwidth(path);

	if (cc->bbr.mode == BBR_PROBE_RTT)
		return least;
	if (!bandwidth || !path->rtprop)
		return PATH_FIRST_WINDOW * (uint64_t)path->packet;
	window = muldiv(path_bdp(path), cc->bbr.mode == BBR_PROBE_BW ? WINDOW_GAIN : HIGH_GAIN, 1000);
	/* What is sent at once, and what arrives while ACKs are held back. */
	window += 3 * least + muldiv(bandwidth, path->coalesce + path->held, NS);
	if (cc->bbr.mode == BBR_STARTUP && window < PATH_FIRST_WINDOW * (uint64_t)path->packet)
		window = PATH_FIRST_WINDOW * (uint64_t)path->packet;
	return window > least ? window : least;
}

static void leave_startup(struct congestion *cc)
{
	uint64_t bandwidth = path_bandwidth(&cc->path);

	if (bandwidth >= cc->bbr.full + cc->bbr.full / 4) {
		cc->bbr.full = bandwidth;
		cc->bbr.full_rounds = 0;
	} else if (++cc->bbr.full_rounds >= 3) {
		cc->bbr.mode = BBR_DRAIN;
	}
}

static void enter_probe_bw(struct congestion *cc, uint64_t now)
{
	cc->bbr.mode = BBR_PROBE_BW;
	cc->bbr.cycle_at = now;
}

static void probe_rtt(struct congestion *cc, const struct ack_sample *sample)
{
	if (!cc->bbr.probe_until) {
		if (sample->inflight <= LEAST_WINDOW * (uint64_t)cc->path.packet) {
			cc->bbr.probe_until = sample->now + PROBE_RTT_NS;
			cc->path.rtprop = sample->rtt ? sample->rtt : cc->path.rtt;
		}
	} else if (sample->now >= cc->bbr.probe_until) {
		cc->path.rtprop_at = sample->now;
		if (cc->bbr.full_rounds >= 3)
			enter_probe_bw(cc, sample->now);
		else
			cc->bbr.mode = BBR_STARTUP;
	}
}

static void bbr_on_ack(struct congestion *cc, const struct ack_sample *sample, const struct path_change *change)
{
	struct bbr_state *bbr = &cc->bbr;

	if (change->round_began && bbr->mode == BBR_STARTUP)
		leave_startup(cc);
	if (bbr->mode == BBR_DRAIN && sample->inflight <= path_bdp(&cc->path))
		enter_probe_bw(cc, sample->now);
	if (bbr->mode == BBR_PROBE_BW) {
		bool over = sample->now - bbr->cycle_at > cc->path.rtprop;

		if (cycle_gain[bbr->cycle] < 1000 && sample->inflight <= path_bdp(&cc->path))
			over = true;
		if (over) {
			bbr->cycle = (bbr->cycle + 1) % CYCLE;
			bbr->cycle_at = sample->now;
		}
	}
	if (change->rtprop_expired && bbr->mode != BBR_PROBE_RTT) {
		bbr->mode = BBR_PROBE_RTT;
		bbr->probe_until = 0;
	}
	if (bbr->mode == BBR_PROBE_RTT)
		probe_rtt(cc, sample);
}

const struct congestion_ops bbr_ops = {
	.name = "bbr",
	.window_limited = true,
	.on_ack = bbr_on_ack,
	.pacing_rate = bbr_pacing_rate,
	.window = bbr_window,
};

// SPDX-License-Identifier: BSD-3-Clause
#include "rate.h"

#include <string.h>

#define NS 1000000000ULL
#define HIGH_GAIN 2885 /* 2 / ln 2, in thousandths */
#define DRAIN_GAIN 347
#define WINDOW_GAIN 2000
#define RTPROP_WINDOW (10 * NS)
#define PROBE_RTT_NS (200 * 1000000ULL)
#define LEAST_WINDOW 4
#define FIRST_RTT 1000000ULL
#define LEAST_RTT 20000ULL /* between hosts that do something with a packet; a handshake in virtual time takes 20 ns */
#define LEAST_TIMEOUT 1000000ULL

static const uint32_t cycle_gain[] = { 1250, 750, 1000, 1000, 1000, 1000, 1000, 1000 };

#define CYCLE (sizeof(cycle_gain) / sizeof(*cycle_gain))

void rate_init(struct rate *rate, uint32_t packet, uint64_t coalesce, uint32_t draw)
{
	memset(rate, 0, sizeof(*rate));
	rate->packet = packet;
	rate->probe_permille = 1000;
	rate->coalesce = coalesce;
	rate->cycle = 2 + draw % (CYCLE - 2); /* flows that begin together do not probe together */
}

uint64_t rate_bandwidth(const struct rate *rate)
{
	uint64_t highest = 0;
	int i;

	for (i = 0; i < RATE_ROUNDS; i++)
		if (rate->highest[i] > highest)
			highest = rate->highest[i];
	return highest;
}

static uint64_t times(uint64_t value, uint64_t numerator, uint64_t denominator)
{
	return (uint64_t)((unsigned __int128)value * numerator / denominator);
}

static uint64_t bdp(const struct rate *rate)
{
	return times(rate_bandwidth(rate), rate->rtprop, NS);
}

uint64_t rate_per_rtt(const struct rate *rate, uint64_t bytes)
{
	uint64_t rtt = rate->rtt ? rate->rtt : FIRST_RTT;

	return times(bytes, NS, rtt > LEAST_RTT ? rtt : LEAST_RTT);
}

uint64_t rate_pacing(const struct rate *rate)
{
	uint64_t bandwidth = rate_bandwidth(rate);
	uint64_t gain = 1000;

	if (rate->rule.name && rule_speed(rate))
		return rule_speed(rate);

	/* A sender of a few bytes now and then has measured itself: it starts as it would at first. */
	if (!rate->filled) {
		uint64_t first = rate_per_rtt(rate, RATE_FIRST_WINDOW * (uint64_t)rate->packet);

		if (bandwidth < first)
			bandwidth = first;
	}
	if (rate->mode == RATE_STARTUP)
		gain = HIGH_GAIN;
	else if (rate->mode == RATE_DRAIN)
		gain = DRAIN_GAIN;
	else if (rate->mode == RATE_PROBE_BW)
		gain = 1000 + ((int64_t)cycle_gain[rate->cycle] - 1000) * rate->probe_permille / 1000;
	bandwidth = times(bandwidth, gain, 1000);
	return bandwidth ? bandwidth : 1;
}

uint64_t rate_window(const struct rate *rate)
{
	uint64_t least = LEAST_WINDOW * (uint64_t)rate->packet;
	uint64_t window, bandwidth = rate_bandwidth(rate);

	if (rate->rule.name && rule_speed(rate))
		return times(rule_speed(rate), rate->rtt, NS) + rate->packet;
	if (rate->mode == RATE_PROBE_RTT)
		return least;
	if (!bandwidth || !rate->rtprop)
		return RATE_FIRST_WINDOW * (uint64_t)rate->packet;
	window = times(bdp(rate), rate->mode == RATE_PROBE_BW ? WINDOW_GAIN : HIGH_GAIN, 1000);
	/* What is sent at once, and what arrives while ACKs are held back. */
	window += 3 * least + times(bandwidth, rate->coalesce + rate->held, NS);
	if (rate->mode == RATE_STARTUP && window < RATE_FIRST_WINDOW * (uint64_t)rate->packet)
		window = RATE_FIRST_WINDOW * (uint64_t)rate->packet;
	return window > least ? window : least;
}

uint64_t rate_timeout(const struct rate *rate)
{
	uint64_t rtt = rate->rtt ? rate->rtt : 100 * FIRST_RTT;
	uint64_t spare = 4 * rate->rttvar;

	return rtt + (spare > LEAST_TIMEOUT ? spare : LEAST_TIMEOUT) + rate->coalesce + rate->held;
}

void rate_rtt(struct rate *rate, uint64_t rtt, uint64_t now)
{
	uint64_t off;

	if (!rtt)
		rtt = 1;
	if (!rate->rtt) {
		rate->rtt = rtt;
		rate->rttvar = rtt / 2;
	} else {
		off = rate->rtt > rtt ? rate->rtt - rtt : rtt - rate->rtt;
		rate->rttvar = (3 * rate->rttvar + off) / 4;
		rate->rtt = (7 * rate->rtt + rtt) / 8;
	}
	if (!rate->rtprop || rtt <= rate->rtprop) {
		rate->rtprop = rtt;
		rate->rtprop_at = now;
	}
}

static void enter_probe_bw(struct rate *rate, uint64_t now)
{
	rate->mode = RATE_PROBE_BW;
	rate->cycle_at = now;
}

static void follow_rounds(struct rate *rate, const struct rate_sample *sample)
{
	bool begins = sample->acked_when_sent >= rate->round_ends;
	uint64_t *highest = &rate->highest[rate->round % RATE_ROUNDS];
	uint64_t bandwidth;

	if (sample->bandwidth && !sample->app_limited)
		rate->filled = true;
	if (begins && sample->bandwidth && !sample->app_limited) {
		rate->round_ends = sample->acked;
		rate->round++;
		highest = &rate->highest[rate->round % RATE_ROUNDS];
		*highest = 0;
	}
	if (sample->bandwidth &&
	    (!sample->app_limited || sample->bandwidth >= rate_bandwidth(rate)) &&
	    sample->bandwidth > *highest)
		*highest = sample->bandwidth;
	if (!begins || !sample->bandwidth || sample->app_limited || rate->mode != RATE_STARTUP)
		return;
	bandwidth = rate_bandwidth(rate);
	if (bandwidth >= rate->full + rate->full / 4) {
		rate->full = bandwidth;
		rate->full_rounds = 0;
	} else if (++rate->full_rounds >= 3) {
		rate->mode = RATE_DRAIN;
	}
}

void rate_ack(struct rate *rate, const struct rate_sample *sample)
{
	bool expired = rate->rtprop && sample->now > rate->rtprop_at + RTPROP_WINDOW;

	if (sample->rtt) {
		rate->held -= rate->held / 16;
		if (sample->held > rate->held)
			rate->held = sample->held;
		rate_rtt(rate, sample->rtt, sample->now);
		/* Alone on its way it met no queue of its own: as good as a probe. */
		if (expired && sample->was_idle) {
			rate->rtprop = sample->rtt;
			rate->rtprop_at = sample->now;
			expired = false;
		}
	}
	follow_rounds(rate, sample);
	if (rate->rule.name) {
		rule_ack(rate, sample);
		return;
	}
	if (rate->mode == RATE_DRAIN && sample->inflight <= bdp(rate))
		enter_probe_bw(rate, sample->now);
	if (rate->mode == RATE_PROBE_BW) {
		bool over = sample->now - rate->cycle_at > rate->rtprop;

		if (cycle_gain[rate->cycle] < 1000 && sample->inflight <= bdp(rate))
			over = true;
		if (over) {
			rate->cycle = (rate->cycle + 1) % CYCLE;
			rate->cycle_at = sample->now;
		}
	}
	if (expired && rate->mode != RATE_PROBE_RTT) {
		rate->mode = RATE_PROBE_RTT;
		rate->probe_until = 0;
	}
	if (rate->mode != RATE_PROBE_RTT)
		return;
	if (!rate->probe_until) {
		if (sample->inflight <= LEAST_WINDOW * (uint64_t)rate->packet) {
			rate->probe_until = sample->now + PROBE_RTT_NS;
			rate->rtprop = sample->rtt ? sample->rtt : rate->rtt;
		}
	} else if (sample->now >= rate->probe_until) {
		rate->rtprop_at = sample->now;
		if (rate->full_rounds >= 3)
			enter_probe_bw(rate, sample->now);
		else
			rate->mode = RATE_STARTUP;
	}
}

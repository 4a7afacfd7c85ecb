// SPDX-License-Identifier: BSD-3-Clause
#include "rules.h"

#include "rate.h"

#define NS 1000000000ULL
#define GAIN 16 /* DCTCP's g is 1/16 */
#define WHOLE 1024

static uint64_t part(uint64_t value, uint64_t permille)
{
	return (uint64_t)((unsigned __int128)value * permille / 1000);
}

/* Two packets in the longest round trip that is tolerated. */
static uint64_t least(const struct rate *rate)
{
	return 2ULL * rate->packet * NS / (rate->rtprop + rate->rule.high + 1);
}

uint64_t rule_speed(const struct rate *rate)
{
	return rate->state.speed;
}

/*
 * By beta and this share; at most once a round trip, which ends with `ends`: what is heard within one is of
 * what was sent before it fell.
 */
static void fall(struct rate *rate, const struct rate_sample *sample, uint64_t permille, uint64_t *ends)
{
	struct rule_state *state = &rate->state;

	if (sample->acked_when_sent >= *ends) {
		state->speed -= part(state->speed, rate->rule.decrease_permille * permille / 1000);
		*ends = sample->acked;
	}
}

/*
 * MLT, section 3. Of two things it says nothing: which of its rules wins where both match, and what
 * holds between the limits with a growing delay; TIMELY (Mittal et al., SIGCOMM 2015) falls there by
 * how steeply it grows, smoothed: here it is from one acknowledgement to the next.
 */
static void by_delay(struct rate *rate, const struct rate_sample *sample, uint64_t step)
{
	struct rule_state *state = &rate->state;
	const struct rule *rule = &rate->rule;
	uint64_t high = rate->rtprop + rule->high, rtt = sample->rtt, last = state->last_rtt;
	bool late = rtt > high, shrinks = rtt < last;

	if (!rtt)
		return;
	if (late && !(shrinks && rule->increase_wins)) {
		fall(rate, sample, (uint64_t)((unsigned __int128)(rtt - high) * 1000 / rtt), &state->round_ends);
	} else if (rtt < rate->rtprop + rule->low || shrinks) {
		if (!state->rises)
			state->speed += step;
	} else if (rule->by_gradient && last && rtt > last) {
		uint64_t steep = (uint64_t)((unsigned __int128)(rtt - last) * 1000 / (rate->rtprop + 1));

		if (steep)
			fall(rate, sample, steep < 1000 ? steep : 1000, &state->slope_ends);
	}
	if (late || rtt >= rate->rtprop + rule->low)
		state->rises = false;
	state->last_rtt = rtt;
}

/* DLCP: "minimal, DCTCP-like AIMD"; once a round trip. */
static void by_marks(struct rate *rate, const struct rate_sample *sample, uint64_t step)
{
	struct rule_state *state = &rate->state;
	uint64_t marked;

	state->packets += sample->packets;
	state->marked += sample->marked;
	if (state->marked)
		state->rises = false;
	if (sample->acked_when_sent < state->round_ends || !state->packets)
		return;
	marked = state->marked < state->packets ? state->marked : state->packets;
	state->share = ((GAIN - 1) * state->share + marked * WHOLE / state->packets) / GAIN;
	if (marked)
		state->speed -= part(state->speed, rate->rule.decrease_permille * state->share / WHOLE);
	else if (!state->rises)
		state->speed += step;
	state->round_ends = sample->acked;
	state->packets = state->marked = 0;
}

void rule_ack(struct rate *rate, const struct rate_sample *sample)
{
	struct rule_state *state = &rate->state;
	uint64_t news = sample->acked - state->acked;
	uint64_t step = part(part(rate_bandwidth(rate), rate->rule.step_permille), rate->probe_permille);

	state->acked = sample->acked;
	if (!state->speed) {
		state->speed = part(rate_per_rtt(rate, RATE_FIRST_WINDOW * (uint64_t)rate->packet),
				    rate->rule.first_permille);
		state->rises = true;
		state->share = WHOLE;
	}
	if (state->rises && !sample->app_limited)
		state->speed += rate_per_rtt(rate, news);
	if (rate->rule.name == RULE_DELAY)
		by_delay(rate, sample, step);
	else
		by_marks(rate, sample, step);
	if (state->speed < least(rate))
		state->speed = least(rate);
}

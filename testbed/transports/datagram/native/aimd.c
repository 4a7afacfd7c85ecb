// SPDX-License-Identifier: BSD-3-Clause
#include "aimd.h"

#include "bbr.h"
#include "bytes.h"

#define GAIN 16 /* DCTCP's g is 1/16 */
#define WHOLE 1024

static uint64_t part(uint64_t value, uint64_t permille)
{
	return muldiv(value, permille, 1000);
}

/* Two packets in the longest round trip that is tolerated. */
static uint64_t least_speed(const struct congestion *cc)
{
	return 2ULL * cc->path.packet * NS / (cc->path.rtprop + cc->settings.high + 1);
}

/*
 * By beta and this share; at most once a round trip, which ends with `ends`: what is heard within one is of
 * what was sent before it fell.
 */
static void decrease(struct congestion *cc, const struct ack_sample *sample, uint64_t permille, uint64_t *ends)
{
	struct aimd_state *state = &cc->aimd;

	if (sample->acked_when_sent >= *ends) {
		state->speed -= part(state->speed, cc->settings.decrease_permille * permille / 1000);
		*ends = sample->acked;
	}
}

/*
 * MLT, section 3. Of two things it says nothing: which of its rules wins where both match, and what
 * holds between the limits with a growing delay; TIMELY (Mittal et al., SIGCOMM 2015) falls there by
 * how steeply it grows, smoothed: here it is from one ACK to the next.
 */
static void adjust_by_delay(struct congestion *cc, const struct ack_sample *sample, uint64_t step)
{
	struct aimd_state *state = &cc->aimd;
	const struct congestion_settings *rule = &cc->settings;
	uint64_t high = cc->path.rtprop + rule->high, rtt = sample->rtt, last = state->last_rtt;
	bool late = rtt > high, shrinks = rtt < last;

	if (!rtt)
		return;
	if (late && !(shrinks && rule->increase_wins)) {
		decrease(cc, sample, muldiv(rtt - high, 1000, rtt), &state->round_ends);
	} else if (rtt < cc->path.rtprop + rule->low || shrinks) {
		if (!state->rises)
			state->speed += step;
	} else if (rule->by_gradient && last && rtt > last) {
		uint64_t steep = muldiv(rtt - last, 1000, cc->path.rtprop + 1);

		if (steep)
			decrease(cc, sample, steep < 1000 ? steep : 1000, &state->slope_ends);
	}
	if (late || rtt >= cc->path.rtprop + rule->low)
		state->rises = false;
	state->last_rtt = rtt;
}

/* DLCP: "minimal, DCTCP-like AIMD"; once a round trip. */
static void adjust_by_marks(struct congestion *cc, const struct ack_sample *sample, uint64_t step)
{
	struct aimd_state *state = &cc->aimd;
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
		state->speed -= part(state->speed, cc->settings.decrease_permille * state->share / WHOLE);
	else if (!state->rises)
		state->speed += step;
	state->round_ends = sample->acked;
	state->packets = 0;
	state->marked = 0;
}

/* What both do before their rule is asked: the step that it may add. */
static uint64_t begin_ack(struct congestion *cc, const struct ack_sample *sample)
{
	struct aimd_state *state = &cc->aimd;
	uint64_t news = sample->acked - state->acked;
	uint64_t step = part(part(path_bandwidth(&cc->path), cc->settings.step_permille), cc->probe_permille);

	state->acked = sample->acked;
	if (!state->speed) {
		state->speed = part(path_rate_of(&cc->path, PATH_FIRST_WINDOW * (uint64_t)cc->path.packet),
				    cc->settings.first_permille);
		state->rises = true;
		state->share = WHOLE;
	}
	if (state->rises && !sample->app_limited)
		state->speed += path_rate_of(&cc->path, news);
	return step;
}

static void end_ack(struct congestion *cc)
{
	if (cc->aimd.speed < least_speed(cc))
		cc->aimd.speed = least_speed(cc);
}

static void delay_on_ack(struct congestion *cc, const struct ack_sample *sample, const struct path_change *change)
{
	(void)change;
	adjust_by_delay(cc, sample, begin_ack(cc, sample));
	end_ack(cc);
}

static void ecn_on_ack(struct congestion *cc, const struct ack_sample *sample, const struct path_change *change)
{
	(void)change;
	adjust_by_marks(cc, sample, begin_ack(cc, sample));
	end_ack(cc);
}

/* Until it has heard of a packet it sends as BBR starts. */
static uint64_t aimd_pacing_rate(const struct congestion *cc)
{
	return cc->aimd.speed ? cc->aimd.speed : bbr_pacing_rate(cc);
}

/* What a round trip holds, which limits nothing. */
static uint64_t aimd_window(const struct congestion *cc)
{
	if (!cc->aimd.speed)
		return bbr_window(cc);
	return muldiv(cc->aimd.speed, cc->path.rtt, NS) + cc->path.packet;
}

const struct congestion_ops delay_ops = {
	.name = "delay",
	.timer_alone_finds_losses = true,
	.reads_ecn = true,
	.on_ack = delay_on_ack,
	.pacing_rate = aimd_pacing_rate,
	.window = aimd_window,
};

const struct congestion_ops ecn_ops = {
	.name = "ecn",
	.timer_alone_finds_losses = true,
	.reads_ecn = true,
	.on_ack = ecn_on_ack,
	.pacing_rate = aimd_pacing_rate,
	.window = aimd_window,
};

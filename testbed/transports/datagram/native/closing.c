// SPDX-License-Identifier: BSD-3-Clause
#include "closing.h"

#include "bytes.h"
#include "close_report.h"

/* How long a message takes that meets nothing, as its sender measures; 0: it has not said. */
static uint64_t estimate_transfer_ns(const struct dg_core *core, const struct peer *peer, uint64_t bytes)
{
	if (!peer->rx.their_rate || !peer->rx.their_rtprop)
		return 0;
	return peer->rx.their_rtprop * core->settings.rtts_permille / 1000 + muldiv(bytes, NS, peer->rx.their_rate);
}

bool closing_depends_on_time(const struct dg_closing_rule *rule)
{
	return rule->after_ns >= 0 || rule->fraction < 1;
}

void closing_times(const struct dg_core *core, const struct dg_transfer *transfer, uint64_t *lt, uint64_t *deadline)
{
	const struct dg_closing_rule *rule = &transfer->rx.rule;
	uint64_t began = transfer_clock_began(transfer), own = rule->shared_lt ? began : transfer->rx.began;
	uint64_t span, slowest = 0;
	uint32_t i;

	*lt = DG_NEVER;
	*deadline = DG_NEVER;
	if (!began || !closing_depends_on_time(rule))
		return;
	if (rule->lt_ns >= 0) {
		span = rule->lt_ns;
	} else {
		span = estimate_transfer_ns(core, transfer->peer, transfer->bytes);
		for (i = 0; !span && i < core->settings.ranks; i++)
			if (estimate_transfer_ns(core, &core->peers[i], transfer->bytes) > slowest)
				slowest = estimate_transfer_ns(core, &core->peers[i], transfer->bytes);
		if (!span)
			span = slowest; /* of a peer that has said nothing yet */
		if (!span)
			return;
	}
	*lt = (own ? own : began) + span;
	if (rule->after_ns >= 0)
		*deadline = began + span + rule->after_ns;
}

static void close_transfer(struct dg_core *core, struct dg_transfer *transfer, enum dg_close_reason reason,
			   uint64_t now)
{
	transfer_zero_holes(transfer);
	transfer_finish(core, transfer, reason);
	transfer->peer->rx.ack_due = 0; /* it goes before the close */
	close_report_begin(transfer, now);
}

void closing_rule_decide(struct dg_core *core, struct dg_transfer *transfer, uint64_t now)
{
	const struct dg_closing_rule *rule = &transfer->rx.rule;
	double share = (double)transfer->delivered / (double)transfer->bytes;
	uint64_t lt, deadline;

	if (!transfer->posted || transfer->done)
		return;
	if (transfer->delivered == transfer->bytes) {
		close_transfer(core, transfer, DG_COMPLETE, now);
		return;
	}
	closing_times(core, transfer, &lt, &deadline);
	if (now >= deadline && lt != DG_NEVER) {
		close_transfer(core, transfer, DG_DEADLINE, now);
	} else if (!transfer->critical_left) {
		if (rule->tolerance > 0 && share >= 1 - rule->tolerance)
			close_transfer(core, transfer, DG_TOLERANCE, now);
		else if (now >= lt && share >= rule->fraction)
			close_transfer(core, transfer, DG_FRACTION, now);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The closing rule: when a receiver has enough of a message, or has waited for it long enough. */
#ifndef DATAGRAM_CLOSING_H
#define DATAGRAM_CLOSING_H

#include "transfer.h"

/* Whether it may close because time has passed, and not only because something came. */
bool closing_depends_on_time(const struct dg_closing_rule *rule);
/* When LT is over and when the deadline has come, DG_NEVER where that is not known. */
void closing_times(const struct dg_core *core, const struct dg_transfer *transfer, uint64_t *lt, uint64_t *deadline);
/* Close what is posted and open, if its rule says so now. */
void closing_rule_decide(struct dg_core *core, struct dg_transfer *transfer, uint64_t now);

#endif

// SPDX-License-Identifier: BSD-3-Clause
#include "congestion.h"

#include <stddef.h>
#include <string.h>

#include "aimd.h"
#include "bbr.h"

static const struct congestion_ops *const controls[CONGESTION_CONTROLS] = {
	[CONGESTION_BBR] = &bbr_ops,
	[CONGESTION_DELAY] = &delay_ops,
	[CONGESTION_ECN] = &ecn_ops,
};

const struct congestion_ops *congestion_find(uint32_t control)
{
	return control < CONGESTION_CONTROLS ? controls[control] : NULL;
}

void congestion_init(struct congestion *cc, const struct dg_settings *settings, uint32_t draw)
{
	memset(cc, 0, sizeof(*cc));
	cc->ops = congestion_find(settings->congestion.control);
	cc->settings = settings->congestion;
	cc->probe_permille = 1000;
	path_init(&cc->path, settings->segment, settings->coalesce_ns);
	bbr_init(cc, draw);
}

void congestion_on_ack(struct congestion *cc, const struct ack_sample *sample)
{
	struct path_change change = path_on_ack(&cc->path, sample);

	cc->ops->on_ack(cc, sample, &change);
}

uint64_t congestion_pacing_rate(const struct congestion *cc)
{
	return cc->ops->pacing_rate(cc);
}

uint64_t congestion_window(const struct congestion *cc)
{
	return cc->ops->window(cc);
}

// SPDX-License-Identifier: BSD-3-Clause
#include "peer.h"

void peer_begin_datagram(const struct dg_core *core, const struct peer *peer, struct dg_packet *packet,
			 enum dg_type type, uint16_t flags, uint32_t bytes)
{
	const struct wire_header header = {
		.version = DG_VERSION,
		.type = type,
		.flags = flags,
		.rank = core->settings.rank,
		.id = peer->handshake.peer_id,
	};

	wire_begin(packet, &header, bytes);
	packet->rank = peer->rank;
	packet->tag = core->settings.control_tag;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core on a UDP socket: one thread receives, sends and keeps time; whoever has something to send
 * or waits for something calls from any other.
 */
#ifndef DATAGRAM_ENDPOINT_H
#define DATAGRAM_ENDPOINT_H

#include "socket_state.h"
#include "waiters.h"

/*
 * NULL, and errno, if there is no socket to be had at the address of this rank. key: of
 * SIPHASH_KEY bytes, with which every datagram is signed; NULL: none is. counters: a file in
 * memory for who samples them, or -1; at: where in it, a multiple of the page size. paths: of
 * each rank path_count more addresses, which what it sends takes in turn; 0: there are none.
 * by_ring: one system call each time it is woken, for where they are dear (ring_loop.c).
 */
struct endpoint *endpoint_open(const struct dg_settings *settings, const char *const *addresses, const uint16_t *ports,
			       int send_bytes, int receive_bytes, int segments, const uint8_t *key, int counters,
			       uint64_t at, const char *const *paths, uint32_t path_count, int by_ring);
/* No other thread may be in a call for it, but in endpoint_heard. */
void endpoint_close(struct endpoint *endpoint);
/* Call this peer; it may call first. */
void endpoint_call(struct endpoint *endpoint, uint32_t rank);
/* Whether this peer has called, or answered, within so many ns. */
int endpoint_await(struct endpoint *endpoint, uint32_t rank, uint64_t ns);
/* Payload of a packet to this peer, once it is connected. */
uint32_t endpoint_segment(struct endpoint *endpoint, uint32_t rank);
/* NULL, and errno: as dg_send. */
struct dg_transfer *endpoint_send(struct endpoint *endpoint, uint32_t to, uint32_t round, uint32_t message,
				  uint64_t bytes, const uint8_t *data, const uint8_t *tags,
				  const struct dg_span *critical, size_t criticals);
/* NULL, and errno: as dg_receive. */
struct dg_transfer *endpoint_receive(struct endpoint *endpoint, uint32_t from, uint32_t round, uint32_t message,
				     uint64_t bytes, uint8_t *into, const struct dg_closing_rule *how,
				     const struct dg_span *critical, size_t criticals);
size_t endpoint_holes(struct endpoint *endpoint, const struct dg_transfer *transfer, struct dg_span *holes,
		      size_t most);
/* Nobody may wait for it any more, or follow it. */
void endpoint_release(struct endpoint *endpoint, struct dg_transfer *transfer);
void endpoint_read(struct endpoint *endpoint, uint32_t rank, struct dg_counters *peer, struct endpoint_counters *own);
/* Tell everybody, and because of whom (dg_end); what is under way fails. Who cannot be told within a second is not. */
void endpoint_end(struct endpoint *endpoint, uint32_t whom);

#endif

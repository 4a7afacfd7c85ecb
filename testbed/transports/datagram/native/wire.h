/* SPDX-License-Identifier: BSD-3-Clause */
/* The datagrams, byte by byte: docs/reference/wire-format.md has the same as a table. */
#ifndef DATAGRAM_WIRE_H
#define DATAGRAM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DG_VERSION 3
#define DG_HEADER 16 /* of every datagram */
#define DG_DATA_HEADER 60
#define DG_ACK_HEADER 48
#define DG_CLOSE_HEADER 48
#define DG_CLOSED_BYTES 24
#define DG_HELLO_BYTES 64
#define DG_WELCOME_BYTES 26
#define DG_END_BYTES 20
#define DG_LONGEST_CONTROL 1400 /* of what is no data */

enum dg_type {
	DG_HELLO = 1,
	DG_WELCOME,
	DG_DATA,
	DG_ACK,
	DG_CLOSE,
	DG_CLOSED,
	DG_PING,
	DG_PONG,
	DG_END,
};

enum dg_flag { DG_CRITICAL = 1, DG_RESENT = 2, DG_HANDED = 4, DG_BUSY = 8 };

/* Why a receiver closed a message. */
enum dg_close_reason {
	DG_COMPLETE,
	DG_TOLERANCE,
	DG_FRACTION,
	DG_DEADLINE,
	DG_ROUND, /* of the format; nothing closes so */
	DG_GONE,
};

struct dg_packet {
	uint32_t rank; /* whom it goes to */
	uint32_t header_bytes;
	uint32_t payload_bytes;
	uint32_t tag; /* the second byte of its IP header */
	const uint8_t *payload; /* NULL: zeros */
	uint8_t header[DG_LONGEST_CONTROL];
};

struct wire_header {
	uint8_t version;
	uint8_t type;
	uint16_t flags;
	uint32_t rank; /* of its sender */
	uint64_t id; /* of the connection, as its receiver drew it */
};

struct wire_greeting { /* HELLO and WELCOME */
	uint64_t id;
	uint32_t segment;
};

struct wire_data {
	uint64_t number;
	uint32_t round;
	uint32_t message;
	uint64_t bytes; /* of the message */
	uint64_t offset;
	uint32_t rtprop_us; /* as its sender measures it */
	uint32_t rate; /* bytes/s / 125: kbit/s */
	uint16_t segment;
	uint16_t length;
	const uint8_t *payload; /* of what came */
};

struct wire_ack {
	uint64_t largest; /* packet number */
	uint64_t delivered; /* bytes, when that came */
	uint64_t arrived; /* when it came, by its receiver's clock */
	uint32_t delay; /* ns from then until this left */
	uint16_t map_bytes;
	uint16_t marked; /* packets that came marked, so far */
	const uint8_t *map; /* of what came: a bit for each number before the largest, downwards */
};

struct wire_close {
	uint32_t round;
	uint32_t message;
	uint64_t bytes;
	uint64_t delivered;
	uint8_t reason;
	uint16_t map_bytes;
	uint32_t first; /* packet of this piece of the map */
	const uint8_t *map; /* of what came: a bit for each packet */
};

/* Each reads what a datagram says; false: it is too short, or longer or shorter than it says. */
bool wire_read_header(const uint8_t *datagram, size_t bytes, struct wire_header *header);
bool wire_read_greeting(const uint8_t *datagram, size_t bytes, size_t least, struct wire_greeting *greeting);
bool wire_read_data(const uint8_t *datagram, size_t bytes, struct wire_data *data);
bool wire_read_ack(const uint8_t *datagram, size_t bytes, struct wire_ack *ack);
bool wire_read_close(const uint8_t *datagram, size_t bytes, struct wire_close *close);
bool wire_read_closed(const uint8_t *datagram, size_t bytes, uint32_t *round, uint32_t *message);
bool wire_read_end(const uint8_t *datagram, size_t bytes, uint32_t *whom);

/* A datagram with its header, whose other bytes are 0. The functions below fill in what follows. */
void wire_begin(struct dg_packet *packet, const struct wire_header *header, uint32_t bytes);
void wire_write_greeting(struct dg_packet *packet, uint64_t id, uint32_t segment);
void wire_write_data(struct dg_packet *packet, const struct wire_data *data);
void wire_write_ack(struct dg_packet *packet, const struct wire_ack *ack);
void wire_write_close(struct dg_packet *packet, const struct wire_close *close);
void wire_write_closed(struct dg_packet *packet, uint32_t round, uint32_t message);
void wire_write_end(struct dg_packet *packet, uint32_t whom);

#endif

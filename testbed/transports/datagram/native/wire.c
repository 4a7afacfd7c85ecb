// SPDX-License-Identifier: BSD-3-Clause
#include "wire.h"

#include <string.h>

#include "bytes.h"

bool wire_read_header(const uint8_t *datagram, size_t bytes, struct wire_header *header)
{
	if (bytes < DG_HEADER)
		return false;
	header->version = datagram[0];
	header->type = datagram[1];
	header->flags = get_be16(datagram + 2);
	header->rank = get_be32(datagram + 4);
	header->id = get_be64(datagram + 8);
	return true;
}

bool wire_read_greeting(const uint8_t *datagram, size_t bytes, size_t least, struct wire_greeting *greeting)
{
	if (bytes < least)
		return false;
	greeting->id = get_be64(datagram + DG_HEADER);
	greeting->segment = get_be16(datagram + DG_HEADER + 8);
	return true;
}

bool wire_read_data(const uint8_t *datagram, size_t bytes, struct wire_data *data)
{
	if (bytes < DG_DATA_HEADER)
		return false;
	data->number = get_be64(datagram + 16);
	data->round = get_be32(datagram + 24);
	data->message = get_be32(datagram + 28);
	data->bytes = get_be64(datagram + 32);
	data->offset = get_be64(datagram + 40);
	data->rtprop_us = get_be32(datagram + 48);
	data->rate = get_be32(datagram + 52);
	data->segment = get_be16(datagram + 56);
	data->length = get_be16(datagram + 58);
	data->payload = datagram + DG_DATA_HEADER;
	return bytes == DG_DATA_HEADER + (size_t)data->length;
}

bool wire_read_ack(const uint8_t *datagram, size_t bytes, struct wire_ack *ack)
{
	if (bytes < DG_ACK_HEADER)
		return false;
	ack->largest = get_be64(datagram + 16);
	ack->delivered = get_be64(datagram + 24);
	ack->arrived = get_be64(datagram + 32);
	ack->delay = get_be32(datagram + 40);
	ack->map_bytes = get_be16(datagram + 44);
	ack->marked = get_be16(datagram + 46);
	ack->map = datagram + DG_ACK_HEADER;
	return bytes == DG_ACK_HEADER + (size_t)ack->map_bytes;
}

bool wire_read_close(const uint8_t *datagram, size_t bytes, struct wire_close *close)
{
	if (bytes < DG_CLOSE_HEADER)
		return false;
	close->round = get_be32(datagram + 16);
	close->message = get_be32(datagram + 20);
	close->bytes = get_be64(datagram + 24);
	close->delivered = get_be64(datagram + 32);
	close->reason = datagram[40];
	close->map_bytes = get_be16(datagram + 42);
	close->first = get_be32(datagram + 44);
	close->map = datagram + DG_CLOSE_HEADER;
	return bytes == DG_CLOSE_HEADER + (size_t)close->map_bytes;
}

bool wire_read_closed(const uint8_t *datagram, size_t bytes, uint32_t *round, uint32_t *message)
{
	if (bytes < DG_CLOSED_BYTES)
		return false;
	*round = get_be32(datagram + 16);
	*message = get_be32(datagram + 20);
	return true;
}

bool wire_read_end(const uint8_t *datagram, size_t bytes, uint32_t *whom)
{
	if (bytes < DG_END_BYTES)
		return false;
	*whom = get_be32(datagram + DG_HEADER);
	return true;
}

void wire_begin(struct dg_packet *packet, const struct wire_header *header, uint32_t bytes)
{
	memset(packet->header, 0, bytes);
	packet->header_bytes = bytes;
	packet->payload_bytes = 0;
	packet->payload = NULL;
	packet->header[0] = header->version;
	packet->header[1] = header->type;
	put_be16(packet->header + 2, header->flags);
	put_be32(packet->header + 4, header->rank);
	put_be64(packet->header + 8, header->id);
}

void wire_write_greeting(struct dg_packet *packet, uint64_t id, uint32_t segment)
{
	put_be64(packet->header + DG_HEADER, id);
	put_be16(packet->header + DG_HEADER + 8, segment);
}

void wire_write_data(struct dg_packet *packet, const struct wire_data *data)
{
	put_be64(packet->header + 16, data->number);
	put_be32(packet->header + 24, data->round);
	put_be32(packet->header + 28, data->message);
	put_be64(packet->header + 32, data->bytes);
	put_be64(packet->header + 40, data->offset);
	put_be32(packet->header + 48, data->rtprop_us);
	put_be32(packet->header + 52, data->rate);
	put_be16(packet->header + 56, data->segment);
	put_be16(packet->header + 58, data->length);
}

void wire_write_ack(struct dg_packet *packet, const struct wire_ack *ack)
{
	put_be64(packet->header + 16, ack->largest);
	put_be64(packet->header + 24, ack->delivered);
	put_be64(packet->header + 32, ack->arrived);
	put_be32(packet->header + 40, ack->delay);
	put_be16(packet->header + 44, ack->map_bytes);
	put_be16(packet->header + 46, ack->marked);
}

void wire_write_close(struct dg_packet *packet, const struct wire_close *close)
{
	put_be32(packet->header + 16, close->round);
	put_be32(packet->header + 20, close->message);
	put_be64(packet->header + 24, close->bytes);
	put_be64(packet->header + 32, close->delivered);
	packet->header[40] = close->reason;
	put_be16(packet->header + 42, close->map_bytes);
	put_be32(packet->header + 44, close->first);
	memcpy(packet->header + DG_CLOSE_HEADER, close->map, close->map_bytes);
}

void wire_write_closed(struct dg_packet *packet, uint32_t round, uint32_t message)
{
	put_be32(packet->header + 16, round);
	put_be32(packet->header + 20, message);
}

void wire_write_end(struct dg_packet *packet, uint32_t whom)
{
	put_be32(packet->header + DG_HEADER, whom);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The UDP socket of an endpoint, and what the kernel is told of it. */
#ifndef DATAGRAM_SOCKET_H
#define DATAGRAM_SOCKET_H

#include "socket_state.h"

/* false, and errno: the text is no IPv4 address. */
bool socket_address(struct sockaddr_in *made, const char *text, uint16_t port);
/* false, and errno: there is no socket to be had at the address of this rank. */
bool socket_open(struct endpoint *endpoint, int send_bytes, int receive_bytes);

#endif

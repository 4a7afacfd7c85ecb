// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>

#include "congestion.h"

#ifndef SO_RXQ_OVFL
#define SO_RXQ_OVFL 40
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

bool socket_address(struct sockaddr_in *made, const char *text, uint16_t port)
{
	made->sin_family = AF_INET;
	made->sin_port = htons(port);
	if (inet_pton(AF_INET, text, &made->sin_addr) == 1)
		return true;
	errno = EINVAL;
	return false;
}

static bool set_option(int fd, int level, int name, int value)
{
	return !setsockopt(fd, level, name, &value, sizeof(value));
}

bool socket_open(struct endpoint *endpoint, int send_bytes, int receive_bytes)
{
	struct sockaddr_in here = endpoint->addresses[endpoint->settings.rank];
	int fd, none = 0;

	if (endpoint->path_count) /* its other addresses are its own, too */
		here.sin_addr.s_addr = htonl(INADDR_ANY);

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	endpoint->fd = fd;
	if (fd < 0)
		return false;
	if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes))
		set_option(fd, SOL_SOCKET, SO_RCVBUF, receive_bytes);
	if (endpoint->most_segments > 1) {
		set_option(fd, SOL_UDP, UDP_GRO, 1); /* where the kernel has it not, each comes by itself */
		if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof(none)))
			endpoint->most_segments = 1;
	}
	/*
	 * Anybody can forge ICMP. Without IP_RECVERR none is heard of, so that none ends a peer or
	 * makes a call fail; with PROBE packets are as large as the interface allows, and never
	 * fragmented, whatever a route's MTU is said to be.
	 */
	return set_option(fd, SOL_SOCKET, SO_SNDBUF, send_bytes) && set_option(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1) &&
	       set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1) &&
	       set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) &&
	       (!congestion_find(endpoint->settings.congestion.control)->reads_ecn ||
		set_option(fd, IPPROTO_IP, IP_RECVTOS, 1)) &&
	       !bind(fd, (const struct sockaddr *)&here, sizeof(here));
}

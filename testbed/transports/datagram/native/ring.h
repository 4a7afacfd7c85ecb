/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A datagram socket by io_uring(7): what is sent, the wait, and what has come meanwhile are one
 * system call. Under virtual time each costs two changes of processes, which is most of what a
 * transport in user space costs there. Only the thread that opens a ring may use it.
 */
#ifndef TRANSPORTS_RING_H
#define TRANSPORTS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define RING_CONTROL 160 /* bytes of control messages that come with a datagram */

enum ring_kind { RING_ARRIVED, RING_REFUSED, RING_FAILED, RING_ROOM };

struct ring_event {
	enum ring_kind kind;
	struct msghdr message; /* arrived: from whom, and its control messages */
	uint8_t *bytes;
	size_t length;
	uint32_t number; /* not sent: which one, as ring_send was told */
	int error;
};

struct ring;

/*
 * socket: what is sent and received by; wake: a file that is readable whenever the wait shall
 * end; longest: bytes of a datagram. NULL where the kernel has no io_uring that can do it.
 */
struct ring *ring_open(int socket, int wake, size_t longest);
void ring_close(struct ring *ring);

/* What is told has to stay until ring_wait has returned. false: there is no room before that. */
bool ring_send(struct ring *ring, const struct msghdr *message, uint32_t number);

/* RING_ROOM shall be told as soon as the socket has room again. */
bool ring_await_room(struct ring *ring);

#define RING_REST UINT64_MAX
/*
 * Send what was handed over, and wait until an instant of the monotonic clock (0: not at all) or
 * until something happens, but for so many ns from now on in any case (RING_REST: until the
 * instant). true: it has come.
 */
bool ring_wait(struct ring *ring, uint64_t until_ns, uint64_t rest_ns);

/* The next of what has happened; what it points to is there until the next call. */
bool ring_take(struct ring *ring, struct ring_event *event);

#endif

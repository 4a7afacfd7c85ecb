// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring.h"

#ifdef IORING_SETUP_DEFER_TASKRUN /* Linux 6.1 */

#define NS 1000000000ULL
#define SUBMISSIONS 128
#define COMPLETIONS 1024
#define BUFFERS 256 /* a power of two */
#define GROUP 0
#define RESTS COMPLETIONS /* so much never happens at once */

#ifndef IORING_ENTER_ABS_TIMER /* Linux 6.12 */
#define IORING_ENTER_ABS_TIMER (1U << 5)
#endif
#ifndef IORING_FEAT_MIN_TIMEOUT /* the same */
#define IORING_FEAT_MIN_TIMEOUT (1U << 15)
#define min_wait_usec pad
#endif

/* What a completion is of; the numbers of what is sent are above. */
enum { OF_RECEIVE, OF_WAKE, OF_ROOM, OF_SEND };

struct ring {
	int fd, socket, wake;
	void *shared;
	size_t shared_bytes;
	struct io_uring_sqe *entries;
	uint32_t *tail, *order, mask;
	uint32_t *done_head, *done_tail, done_mask;
	struct io_uring_cqe *done;
	uint32_t queued;
	struct io_uring_buf_ring *free;
	uint8_t *buffers;
	size_t each;
	uint16_t given; /* buffers, in all */
	int taken; /* the buffer that the last event lay in; -1: none */
	bool receives, wakes;
	struct msghdr shape; /* of what is received */
};

static struct io_uring_sqe *next_entry(struct ring *ring)
{
	struct io_uring_sqe *entry;
	uint32_t at;

	if (ring->queued == SUBMISSIONS)
		return NULL;
	at = (*ring->tail + ring->queued++) & ring->mask;
	ring->order[at] = at;
	entry = &ring->entries[at];
	memset(entry, 0, sizeof(*entry));
	return entry;
}

static void give(struct ring *ring, uint32_t buffer)
{
	struct io_uring_buf *place = &ring->free->bufs[ring->given & (BUFFERS - 1)];

	place->addr = (uintptr_t)(ring->buffers + buffer * ring->each);
	place->len = ring->each;
	place->bid = buffer;
	__atomic_store_n(&ring->free->tail, ++ring->given, __ATOMIC_RELEASE);
}

static bool map(struct ring *ring, const struct io_uring_params *made)
{
	size_t orders = made->sq_off.array + made->sq_entries * sizeof(uint32_t);
	size_t completions = made->cq_off.cqes + made->cq_entries * sizeof(struct io_uring_cqe);
	uint8_t *shared;

	ring->shared_bytes = orders > completions ? orders : completions;
	ring->shared = mmap(NULL, ring->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			    IORING_OFF_SQ_RING);
	ring->entries = mmap(NULL, made->sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	if (ring->shared == MAP_FAILED || ring->entries == MAP_FAILED)
		return false;
	shared = ring->shared;
	ring->tail = (uint32_t *)(shared + made->sq_off.tail);
	ring->order = (uint32_t *)(shared + made->sq_off.array);
	ring->mask = *(uint32_t *)(shared + made->sq_off.ring_mask);
	ring->done_head = (uint32_t *)(shared + made->cq_off.head);
	ring->done_tail = (uint32_t *)(shared + made->cq_off.tail);
	ring->done_mask = *(uint32_t *)(shared + made->cq_off.ring_mask);
	ring->done = (struct io_uring_cqe *)(shared + made->cq_off.cqes);
	return true;
}

static bool lend_buffers(struct ring *ring, size_t longest)
{
	struct io_uring_buf_reg told = { .ring_entries = BUFFERS, .bgid = GROUP };
	uint32_t i;

	ring->each = (sizeof(struct io_uring_recvmsg_out) + sizeof(struct sockaddr_in) + RING_CONTROL + longest + 63) &
		     ~(size_t)63;
	ring->free = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ring->buffers = mmap(NULL, BUFFERS * ring->each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring->free == MAP_FAILED || ring->buffers == MAP_FAILED)
		return false;
	told.ring_addr = (uintptr_t)ring->free;
	if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_PBUF_RING, &told, 1))
		return false;
	for (i = 0; i < BUFFERS; i++)
		give(ring, i);
	return true;
}

struct ring *ring_open(int socket, int wake, size_t longest)
{
	struct io_uring_params made = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
		.cq_entries = COMPLETIONS,
	};
	struct ring *ring = calloc(1, sizeof(*ring));

	if (!ring)
		return NULL;
	ring->shared = MAP_FAILED;
	ring->entries = MAP_FAILED;
	ring->free = MAP_FAILED;
	ring->buffers = MAP_FAILED;
	ring->taken = -1;
	ring->socket = socket;
	ring->wake = wake;
	ring->shape.msg_namelen = sizeof(struct sockaddr_in);
	ring->shape.msg_controllen = RING_CONTROL;
	ring->fd = syscall(SYS_io_uring_setup, SUBMISSIONS, &made);
	/* An instant that has passed: whether it can be waited for, and nothing else is lost by it. */
	if (ring->fd < 0 || !(made.features & IORING_FEAT_MIN_TIMEOUT) || !map(ring, &made) ||
	    !lend_buffers(ring, longest) || !ring_wait(ring, 1, RING_REST)) {
		ring_close(ring);
		return NULL;
	}
	return ring;
}

void ring_close(struct ring *ring)
{
	if (ring->fd >= 0)
		close(ring->fd);
	if (ring->shared != MAP_FAILED)
		munmap(ring->shared, ring->shared_bytes);
	if (ring->entries != MAP_FAILED)
		munmap(ring->entries, SUBMISSIONS * sizeof(struct io_uring_sqe));
	if (ring->free != MAP_FAILED)
		munmap(ring->free, BUFFERS * sizeof(struct io_uring_buf));
	if (ring->buffers != MAP_FAILED)
		munmap(ring->buffers, BUFFERS * ring->each);
	free(ring);
}

bool ring_send(struct ring *ring, const struct msghdr *message, uint32_t number)
{
	struct io_uring_sqe *entry = next_entry(ring);

	if (!entry)
		return false;
	entry->opcode = IORING_OP_SENDMSG;
	entry->flags = IOSQE_CQE_SKIP_SUCCESS;
	entry->fd = ring->socket;
	entry->addr = (uintptr_t)message;
	entry->len = 1;
	entry->msg_flags = MSG_DONTWAIT;
	entry->user_data = OF_SEND + (uint64_t)number;
	return true;
}

static bool poll_for(struct ring *ring, int fd, uint32_t events, uint32_t flags, uint64_t what)
{
	struct io_uring_sqe *entry = next_entry(ring);

	if (!entry)
		return false;
	entry->opcode = IORING_OP_POLL_ADD;
	entry->fd = fd;
	entry->poll32_events = events;
	entry->len = flags;
	entry->user_data = what;
	return true;
}

bool ring_await_room(struct ring *ring)
{
	return poll_for(ring, ring->socket, POLLOUT, 0, OF_ROOM);
}

static void receive(struct ring *ring)
{
	struct io_uring_sqe *entry = next_entry(ring);

	if (!entry)
		return;
	entry->opcode = IORING_OP_RECVMSG;
	entry->flags = IOSQE_BUFFER_SELECT;
	entry->ioprio = IORING_RECV_MULTISHOT;
	entry->fd = ring->socket;
	entry->addr = (uintptr_t)&ring->shape;
	entry->len = 1;
	entry->buf_group = GROUP;
	entry->user_data = OF_RECEIVE;
	ring->receives = true;
}

static void give_back(struct ring *ring)
{
	if (ring->taken >= 0)
		give(ring, ring->taken);
	ring->taken = -1;
}

static bool there_is(const struct ring *ring)
{
	return *ring->done_head != __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE);
}

bool ring_wait(struct ring *ring, uint64_t until_ns, uint64_t rest_ns)
{
	struct __kernel_timespec at = { .tv_sec = until_ns / NS, .tv_nsec = until_ns % NS };
	struct io_uring_getevents_arg told = { .sigmask_sz = 8, .ts = (uintptr_t)&at };
	uint32_t flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG | IORING_ENTER_ABS_TIMER, least = 0;
	long done;

	give_back(ring);
	if (!ring->receives)
		receive(ring);
	if (!ring->wakes)
		ring->wakes = poll_for(ring, ring->wake, POLLIN, IORING_POLL_ADD_MULTI, OF_WAKE);
	if (until_ns && !there_is(ring))
		least = rest_ns ? RESTS : 1;
	if (rest_ns != RING_REST)
		told.min_wait_usec = (rest_ns + 999) / 1000;
	__atomic_store_n(ring->tail, *ring->tail + ring->queued, __ATOMIC_RELEASE);
	do
		done = syscall(SYS_io_uring_enter, ring->fd, ring->queued, least, flags, &told, sizeof(told));
	while (done < 0 && errno == EINTR && !ring->queued);
	ring->queued = 0;
	if (done < 0 && errno != ETIME)
		return false;
	return least && (rest_ns == RING_REST || !there_is(ring));
}

/* A datagram lies behind what is said of it. */
static bool arrived(struct ring *ring, const struct io_uring_cqe *done, struct ring_event *event)
{
	struct io_uring_recvmsg_out *told;
	uint8_t *at;

	ring->taken = done->flags >> IORING_CQE_BUFFER_SHIFT;
	told = (struct io_uring_recvmsg_out *)(ring->buffers + ring->taken * ring->each);
	at = (uint8_t *)(told + 1);
	*event = (struct ring_event){
		.kind = RING_ARRIVED,
		.message = {
			.msg_name = at,
			.msg_namelen = told->namelen,
			.msg_control = at + sizeof(struct sockaddr_in),
			.msg_controllen = told->controllen,
			.msg_flags = told->flags,
		},
		.bytes = at + sizeof(struct sockaddr_in) + RING_CONTROL,
		.length = told->payloadlen,
	};
	if (told->namelen != sizeof(struct sockaddr_in))
		event->message.msg_flags |= MSG_TRUNC;
	return true;
}

bool ring_take(struct ring *ring, struct ring_event *event)
{
	give_back(ring);
	while (there_is(ring)) {
		struct io_uring_cqe done = ring->done[*ring->done_head & ring->done_mask];

		__atomic_store_n(ring->done_head, *ring->done_head + 1, __ATOMIC_RELEASE);
		if (done.user_data == OF_WAKE)
			ring->wakes = done.flags & IORING_CQE_F_MORE;
		if (done.user_data == OF_ROOM) {
			*event = (struct ring_event){ .kind = RING_ROOM };
			return true;
		}
		if (done.user_data == OF_RECEIVE) {
			ring->receives = done.flags & IORING_CQE_F_MORE;
			if (done.flags & IORING_CQE_F_BUFFER && done.res >= 0)
				return arrived(ring, &done, event);
			if (done.res < 0 && done.res != -ENOBUFS) {
				*event = (struct ring_event){ .kind = RING_REFUSED, .error = -done.res };
				return true;
			}
		}
		if (done.user_data >= OF_SEND && done.res < 0) {
			*event = (struct ring_event){
				.kind = RING_FAILED,
				.number = done.user_data - OF_SEND,
				.error = -done.res,
			};
			return true;
		}
	}
	return false;
}

#else

struct ring *ring_open(int socket, int wake, size_t longest)
{
	(void)socket;
	(void)wake;
	(void)longest;
	return NULL;
}

void ring_close(struct ring *ring)
{
	(void)ring;
}

bool ring_send(struct ring *ring, const struct msghdr *message, uint32_t number)
{
	(void)ring;
	(void)message;
	(void)number;
	return false;
}

bool ring_await_room(struct ring *ring)
{
	(void)ring;
	return false;
}

bool ring_wait(struct ring *ring, uint64_t until_ns, uint64_t rest_ns)
{
	(void)ring;
	(void)until_ns;
	(void)rest_ns;
	return false;
}

bool ring_take(struct ring *ring, struct ring_event *event)
{
	(void)ring;
	(void)event;
	return false;
}

#endif

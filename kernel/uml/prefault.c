// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded into Python in user-mode Linux, where mapping a page at its first
 * access takes three context switches. All pages are mapped when Python starts,
 * and those of both processes after a fork, as long as half of the memory is
 * free. testbed/linux/uml_init.py ends the former.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

static void map_own(void)
{
	struct sysinfo info;

	if (!sysinfo(&info) && info.freeram > info.totalram / 2 &&
	    !mlockall(MCL_CURRENT))
		munlockall();
}

static __attribute__((constructor)) void map_all(void)
{
	mlockall(MCL_CURRENT | MCL_FUTURE);
	pthread_atfork(NULL, map_own, map_own);
}

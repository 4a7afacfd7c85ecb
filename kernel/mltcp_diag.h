/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A module's report on a flow: a separate attribute in sock_diag, and
 * TCP_CC_INFO. Linux numbers its attributes from 1 and has some twenty;
 * programs ignore unknown attributes, as ss(8) does.
 */
#ifndef MLTCP_DIAG_H
#define MLTCP_DIAG_H

#define MLTCP_DIAG_INFO	0x3e00	/* of the 14 bits there are */

struct mltcp_info {
	unsigned int iterations;
	unsigned int factor;	/* F, in 1/1024 */
	int ratio;		/* r, in 1/1024; -1 while unknown */
};

#endif /* MLTCP_DIAG_H */

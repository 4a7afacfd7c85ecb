// SPDX-License-Identifier: BSD-3-Clause
/* What a message's packets hold: for who says which of them matter. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The mean of each packet's numbers, of 4 or 8 bytes, by their absolute value unless signed; what is none
 * counts as 0.
 */
void means_of(const uint8_t *data, uint64_t bytes, uint32_t segment, uint32_t element, int with_sign, double *means);

void means_of(const uint8_t *data, uint64_t bytes, uint32_t segment, uint32_t element, int with_sign, double *means)
{
	uint64_t at, end;

	for (at = 0; at < bytes; at = end) {
		uint64_t count = 0;
		double sum = 0;

		end = bytes - at < segment ? bytes : at + segment;
		for (uint64_t here = at; here + element <= end; here += element, count++) {
			double value;
			float narrow;

			if (element == sizeof(value)) {
				memcpy(&value, data + here, sizeof(value));
			} else {
				memcpy(&narrow, data + here, sizeof(narrow));
				value = narrow;
			}
			if (isfinite(value))
				sum += with_sign ? value : fabs(value);
		}
		*means++ = count ? sum / count : 0;
	}
}

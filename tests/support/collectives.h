/* collectives: bitwise checks that every communication engine must pass, run inside a rank. */
#pragma once

#include "comm/comm.h"

/* Every rank computes the values of all ranks, adds them in rank order and compares the sums with the results
 * of the collectives: every dtype, both lanes, in place and not, sizes from zero to more than an engine's
 * buffers, in shared memory and other memory. ERROR_INTERNAL names the first difference. For an engine with
 * its own order of summation, sums are compared within the bound of any order. */
CHECKED Status collectives_check(Comm *comm);

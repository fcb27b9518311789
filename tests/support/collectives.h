/* collectives: what every engine must do, bit for bit, checked from inside a rank. */
#pragma once

#include "comm/comm.h"

/* Every rank makes the values of all ranks by itself, adds them alone in rank order and compares with what
 * the collectives give: every dtype, both lanes, in place and not, sizes from none to more than an
 * engine's buffers take, in shared memory and other. ERROR_INTERNAL names the first difference. On an
 * engine whose order is its own the sums are compared within the bound of any order. */
CHECKED Status collectives_check(Comm *comm);

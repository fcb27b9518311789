/* fold: makes a trace's figures. */
#pragma once

#include "report/figures.h"

/* Of a finished trace, which must outlive them. ERROR_FORMAT for one without a recorded step. */
CHECKED Status figures_make(const Trace *trace, Figures *figures);
void figures_free(Figures *figures);

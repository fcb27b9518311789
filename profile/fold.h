/* fold: computes a trace's figures. */
#pragma once

#include "report/figures.h"

/* The trace must be finished and outlive the figures. ERROR_FORMAT without a recorded step. */
CHECKED Status figures_make(const Trace *trace, Figures *figures);
void figures_free(Figures *figures);

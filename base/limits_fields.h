/* limits_fields: the keys of Peaks in files. */
#pragma once

#include "base/json_fields.h"

extern const Field peaks_fields[];

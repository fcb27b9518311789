#include "tests/support/collectives.h"

#include "base/bfloat16.h"
#include "base/memory.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SIZES = 6, GUARD = 64, PERIOD = 8191 };

/* A check of one collective on one tensor. */
typedef struct {
    Comm *comm;
    Dtype dtype;
    int64_t count; // elements of one part
    Lane lane;
    bool in_place;
    char *device, *host; // memory for four wholes, and as much on the host
    const char *what;
    double (*values)[DTYPE_COUNT][PERIOD]; // (ranks) for each dtype
} Check;

/* Values of very different sizes, so that sums in another order differ. They repeat after a prime number of
 * elements, so that values at another position differ, too. */
static void make_values(Check *c) {
    for (int rank = 0; rank < c->comm->size; rank++) {
        for (int i = 0; i < PERIOD; i++) {
            double exponent = (double)random_below(7, (uint64_t)rank, (uint64_t)i, 24) - 12;
            double value = random_normal(8, (uint64_t)rank, (uint64_t)i) * exp2(exponent);
            c->values[rank][F64][i] = value;
            c->values[rank][F32][i] = (float)value;
            c->values[rank][BF16][i] = bfloat16_to_float(bfloat16_from_float((float)value));
        }
    }
}

static double value_of(const Check *c, int rank, int64_t i) {
    return c->values[rank][c->dtype][i % PERIOD];
}

static void store(const Check *c, void *to, int64_t i, double value) {
    if (c->dtype == F64) ((double *)to)[i] = value;
    if (c->dtype == F32) ((float *)to)[i] = (float)value;
    if (c->dtype == BF16) ((uint16_t *)to)[i] = bfloat16_from_float((float)value);
}

static double loaded(const Check *c, const void *from, int64_t i) {
    if (c->dtype == F64) return ((const double *)from)[i];
    return c->dtype == BF16 ? bfloat16_to_float(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* The sum in rank order, and the error bound of any order: Higham 2002, section 4.2, and one more rounding
 * for bf16. */
static double sum_of(const Check *c, int64_t i, double *bound) {
    double exact = value_of(c, 0, i), magnitude = fabs(exact);
    float narrow = (float)exact;
    for (int rank = 1; rank < c->comm->size; rank++) {
        double value = value_of(c, rank, i);
        exact += value;
        magnitude += fabs(value);
        narrow += (float)value;
    }
    double unit = c->dtype == BF16 ? 0x1p-8 : 0x1p-24; // an engine may round at each step
    *bound = c->comm->rank_order || (c->comm->size == 2 && c->dtype == F32)
                 ? 0
                 : 2 * c->comm->size * unit * magnitude;
    if (c->dtype == F64) return exact;
    return c->dtype == BF16 ? bfloat16_to_float(bfloat16_from_float(narrow)) : narrow;
}

/* ---- transfers from and to the host ---- */

/* Makes the other lane wait for this one. */
static Status order(Comm *comm, Lane before, Lane after) {
    Event *event;
    TRY(comm->device->event_create(comm->device, &event));
    Status status = comm_record(comm, before, event);
    if (!status) status = comm_wait(comm, after, event);
    comm->device->event_free(comm->device, event);
    return status;
}

static Status put(const Check *c, void *to, size_t bytes) {
    TRY(c->comm->device->upload(c->comm->device, to, c->host, bytes));
    return order(c->comm, LANE_MAIN, c->lane);
}

static Status get(const Check *c, const void *from, size_t bytes) {
    TRY(order(c->comm, c->lane, LANE_MAIN));
    TRY(c->comm->device->download(c->comm->device, c->host, from, bytes));
    return comm_check(c->comm);
}

static Status differs(const Check *c, const char *collective, int64_t i, double got, double want) {
    return fail(ERROR_INTERNAL,
                "%s of %s, parts of %" PRId64 ", lane %d%s%s: rank %d has %.17g at %" PRId64 ", not %.17g",
                collective, dtype_name(c->dtype), c->count, c->lane, c->in_place ? ", in place" : "", c->what,
                c->comm->rank, got, i, want);
}

static Status expect_sum(const Check *c, const char *collective, const void *from, int64_t i,
                         int64_t element) {
    double bound, want = sum_of(c, element, &bound), got = loaded(c, from, i);
    return fabs(got - want) <= bound ? OK : differs(c, collective, element, got, want);
}

/* ---- the collectives ---- */

static size_t bytes_of(const Check *c, int64_t elements) {
    return (size_t)elements * dtype_size(c->dtype);
}

static Status fill_own(const Check *c, void *to, int64_t elements) {
    for (int64_t i = 0; i < elements; i++) store(c, c->host, i, value_of(c, c->comm->rank, i));
    return put(c, to, bytes_of(c, elements));
}

/* Includes sizes that cannot be divided into equal parts. */
static Status check_all_reduce(const Check *c, int64_t elements) {
    TRY(fill_own(c, c->device, elements + GUARD));
    TRY(comm_all_reduce(c->comm, tensor_view(c->device, c->dtype, shape1(elements)), c->lane));
    TRY(get(c, c->device, bytes_of(c, elements + GUARD)));
    for (int64_t i = 0; i < elements; i++) TRY(expect_sum(c, "all-reduce", c->host, i, i));
    for (int64_t i = elements; i < elements + GUARD; i++)
        if (loaded(c, c->host, i) != value_of(c, c->comm->rank, i))
            return differs(c, "behind an all-reduce", i, loaded(c, c->host, i),
                           value_of(c, c->comm->rank, i));
    return OK;
}

static Status check_reduce_scatter(const Check *c) {
    const int64_t all = c->count * c->comm->size, first = c->count * c->comm->rank;
    const Tensor whole = tensor_view(c->device, c->dtype, shape1(all));
    const Tensor piece = c->in_place ? comm_piece(c->comm, whole)
                                     : tensor_view(c->device + bytes_of(c, all), c->dtype, shape1(c->count));
    TRY(fill_own(c, c->device, all));
    TRY(comm_reduce_scatter(c->comm, whole, piece, c->lane));
    TRY(get(c, piece.data, bytes_of(c, c->count)));
    for (int64_t i = 0; i < c->count; i++) TRY(expect_sum(c, "reduce-scatter", c->host, i, first + i));
    TRY(get(c, c->device, bytes_of(c, all)));
    for (int64_t i = 0; i < all; i++) { // the rest is unchanged
        bool own = c->in_place && i >= first && i < first + c->count;
        if (!own && loaded(c, c->host, i) != value_of(c, c->comm->rank, i))
            return differs(c, "beside a reduce-scatter", i, loaded(c, c->host, i),
                           value_of(c, c->comm->rank, i));
    }
    return OK;
}

static Status check_all_gather(const Check *c) {
    const int64_t all = c->count * c->comm->size;
    const Tensor whole = tensor_view(c->device, c->dtype, shape1(all));
    const Tensor piece = c->in_place ? comm_piece(c->comm, whole)
                                     : tensor_view(c->device + bytes_of(c, all), c->dtype, shape1(c->count));
    memset(c->host, 0xFF, bytes_of(c, all));
    TRY(put(c, c->device, bytes_of(c, all)));
    TRY(c->comm->device->synchronize(c->comm->device));
    TRY(fill_own(c, piece.data, c->count));
    TRY(comm_all_gather(c->comm, piece, whole, c->lane));
    TRY(get(c, c->device, bytes_of(c, all)));
    for (int64_t i = 0; i < all; i++)
        if (loaded(c, c->host, i) != value_of(c, (int)(i / c->count), i % c->count))
            return differs(c, "all-gather", i, loaded(c, c->host, i),
                           value_of(c, (int)(i / c->count), i % c->count));
    return OK;
}

/* Reduce-scatter and all-gather in two halves, begin and end, with two tensors in flight. */
static Status check_halves(const Check *c) {
    const int64_t all = c->count * c->comm->size, others = all - c->count, first = c->count * c->comm->rank;
    Tensor wholes[2], arrivals[2];
    for (int i = 0; i < 2; i++) {
        char *at = c->device + bytes_of(c, (int64_t)i * (all + others));
        wholes[i] = tensor_view(at, c->dtype, shape1(all));
        arrivals[i] = tensor_view(at + bytes_of(c, all), c->dtype, shape1(others));
        TRY(fill_own(c, at, all));
        TRY(c->comm->device->synchronize(c->comm->device)); // its values are in c->host
    }
    for (int i = 0; i < 2; i++) TRY(comm_scatter(c->comm, i, wholes[i], arrivals[i], c->lane));
    TRY(order(c->comm, c->lane, LANE_MAIN));
    TRY(comm_arrive(c->comm, 0, 2));
    for (int i = 0; i < 2; i++) TRY(comm_sum(c->comm, wholes[i], arrivals[i]));
    for (int i = 0; i < 2; i++) {
        TRY(get(c, comm_piece(c->comm, wholes[i]).data, bytes_of(c, c->count)));
        for (int64_t j = 0; j < c->count; j++) TRY(expect_sum(c, "scatter and sum", c->host, j, first + j));
        TRY(fill_own(c, wholes[i].data, all)); // the other parts are wrong
        TRY(c->comm->device->synchronize(c->comm->device));
    }
    for (int64_t i = 0; i < c->count; i++) store(c, c->host, i, value_of(c, c->comm->rank, i));
    for (int i = 0; i < 2; i++) TRY(put(c, comm_piece(c->comm, wholes[i]).data, bytes_of(c, c->count)));
    TRY(c->comm->device->synchronize(c->comm->device));
    TRY(comm_barrier(c->comm)); // no rank writes any longer
    for (int i = 0; i < 2; i++) TRY(comm_spread(c->comm, 2 + i, wholes[i], c->lane));
    TRY(order(c->comm, c->lane, LANE_MAIN));
    TRY(comm_arrive(c->comm, 2, 1));
    TRY(comm_arrive(c->comm, 3, 1));
    for (int i = 0; i < 2; i++) {
        TRY(get(c, wholes[i].data, bytes_of(c, all)));
        for (int64_t j = 0; j < all; j++)
            if (loaded(c, c->host, j) != value_of(c, (int)(j / c->count), j % c->count))
                return differs(c, "spread", j, loaded(c, c->host, j),
                               value_of(c, (int)(j / c->count), j % c->count));
    }
    TRY(comm_barrier(c->comm));
    TRY(comm_clear(c->comm));
    TRY(c->comm->device->synchronize(c->comm->device));
    return comm_barrier(c->comm);
}

static Status check_all(Check *c) {
    const bool cpu = c->comm->device->backend == BACKEND_CPU, shared = *c->what;
    TRY(check_all_reduce(c, c->count * c->comm->size));
    TRY(check_all_reduce(c, c->count * c->comm->size - c->count / 2));
    if (c->dtype == F64 && !cpu) return OK;
    if (shared || !c->comm->posts) TRY(check_halves(c));
    for (int in_place = 0; in_place < 2; in_place++) {
        c->in_place = in_place;
        TRY(check_reduce_scatter(c));
        TRY(check_all_gather(c));
    }
    return comm_barrier(c->comm);
}

static Status check_sizes(Check *c, const int64_t *sizes) {
    const Dtype dtypes[] = {F32, BF16, F64};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (int s = 0; s < SIZES; s++) {
            c->dtype = dtypes[d];
            c->count = sizes[s];
            c->lane = (d + (size_t)s) % 2 ? LANE_SIDE : LANE_MAIN;
            TRY(check_all(c));
        }
    }
    return OK;
}

Status collectives_check(Comm *comm) {
    /* A tensor of 8 bytes per rank more than the 8 MiB buffer holds. */
    const int64_t sizes[SIZES] = {
        1, 7, 64, 1000, comm_padded(comm->size, 40000) / comm->size, (9 << 20) / 4 / comm->size + 5};
    const size_t bytes = 4 * ((size_t)sizes[SIZES - 1] + GUARD) * sizeof(double) * (size_t)comm->size;
    Device *device = comm->device;
    Check c = {.comm = comm, .host = memory_reserve(bytes), .what = ""};
    c.values = memory_array((size_t)comm->size, sizeof *c.values);
    if (!c.host || !c.values) return fail(ERROR_MEMORY, "no memory for the test");
    make_values(&c);
    Status status = device->allocate(device, bytes, (void **)&c.device);
    if (!status) status = check_sizes(&c, sizes);
    if (!status) status = comm_share(comm, c.device, bytes);
    c.what = ", shared";
    if (!status && device->backend == BACKEND_CUDA) status = check_sizes(&c, sizes);
    if (!status) status = comm_unshare(comm, c.device);
    if (c.device) device->release(device, c.device);
    memory_free(c.host);
    memory_free(c.values);
    return status;
}

#include "kernels/dequantize/dequantize.h"

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/check.h"

Status dequantize_forward(Ctx *ctx, const Dequantize *d) {
    TRY(check_present("dequantize", "x", d->x));
    const int64_t rows = tensor_rows(d->x), width = tensor_width(d->x);
    TRY(check_that("dequantize", !ctx->training, "it is for inference only"));
    TRY(check_that("dequantize", dtype_grouped(d->x.dtype) && width % GROUP == 0 && rows % GROUP_ROWS == 0,
                   "x consists of whole groups and tiles"));
    TRY(check_dense("dequantize", "x", d->x, d->x.dtype, rows, width));
    TRY(check_dense("dequantize", "y", d->y, d->y.dtype, rows, width));
    const Call call = {.operation = OP_DEQUANTIZE,
                       .pass = PASS_FORWARD,
                       .dtype = d->y.dtype,
                       .contract = d,
                       .inputs = {d->x},
                       .work = {.flops = (double)tensor_count(d->y),
                                .bytes = (double)(tensor_bytes(d->x) + tensor_bytes(d->y))},
                       .outputs = {{"y", d->y}}};
    return op_run(ctx, &call);
}

Status dequantize_values(Ctx *ctx, Tensor x, Dtype dtype, Tensor *values) {
    Dequantize d = {.x = x};
    *values = x;
    if (!dtype_grouped(x.dtype)) return OK;
    TRY(take(ctx, ARENA_SCRATCH, "dequantized", dtype, x.shape, &d.y));
    *values = d.y;
    return dequantize_forward(ctx, &d);
}

static void release(HostGroups *host) {
    memory_free(host->matrix.data);
    memory_free(host->matrix.scales);
    *host = (HostGroups){0};
}

static Status transfer(Ctx *ctx, const HostGroups *host, bool up) {
    Device *device = ctx->device;
    const size_t codes = tensor_bytes(host->codes), scales = tensor_bytes(host->scales);
    if (up) {
        TRY(device->upload(device, host->codes.data, host->matrix.data, codes));
        return device->upload(device, host->scales.data, host->matrix.scales, scales);
    }
    TRY(device->download(device, host->matrix.data, host->codes.data, codes));
    return device->download(device, host->matrix.scales, host->scales.data, scales);
}

Status host_groups_open(Ctx *ctx, Tensor matrix, int64_t first, int64_t count, HostGroups *host) {
    *host = (HostGroups){.matrix = matrix, .first = first};
    if (ctx->device->backend == BACKEND_CPU) return OK;
    const int64_t tile = GROUP_ROWS * tensor_width(matrix), begin = first / tile * tile;
    const int64_t end = pieces(first + count, tile) * tile,
                  bytes = (int64_t)dtype_bytes(matrix.dtype, end - begin);
    host->codes = tensor_view((char *)matrix.data + dtype_bytes(matrix.dtype, begin), U8, shape1(bytes));
    host->scales =
        tensor_view((uint16_t *)matrix.scales + begin / GROUP, BF16, shape1((end - begin) / GROUP));
    host->first = first - begin;
    host->matrix = tensor_view(memory_array((size_t)bytes, 1), matrix.dtype,
                               shape2((end - begin) / tensor_width(matrix), tensor_width(matrix)));
    host->matrix.scales = memory_array((size_t)tensor_count(host->scales), sizeof(uint16_t));
    Status status = transfer(ctx, host, false);
    if (status) release(host);
    return status;
}

Status host_groups_close(Ctx *ctx, HostGroups *host, bool changed) {
    if (tensor_empty(host->codes)) return OK;
    Status status = changed ? transfer(ctx, host, true) : OK;
    release(host);
    return status;
}

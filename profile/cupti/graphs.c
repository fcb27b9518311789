/* Maps nodes of captured graphs to the marks under which they were captured. */
#include "profile/cupti/internal.h"

#include "base/memory.h"

#include <stdlib.h>

/* With these marks the kernels of a graph launch can be attributed. Work is captured into a graph; an
 * executable graph is a copy of it, and CUPTI reports which node is a copy of which. Kernels carry their
 * node's id. */

static Node *find_node(const Opened *c, uint64_t id) {
    for (int64_t i = c->node_count - 1; i >= 0; i--)
        if (c->nodes[i].id == id) return &c->nodes[i];
    return NULL;
}

static void set_node(Opened *c, uint64_t id, int64_t mark) {
    Node *known = find_node(c, id); // the id of a node of a destroyed graph
    if (!known) {
        c->nodes = memory_grow(c->nodes, &c->node_room, c->node_count + 1, sizeof *c->nodes);
        known = &c->nodes[c->node_count++];
    }
    *known = (Node){id, mark};
    c->sorted = false;
}

static int by_id(const void *a, const void *b) {
    const Node *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

int64_t cupti_node_mark(Opened *c, uint64_t node) {
    const Node wanted = {.id = node};
    if (!c->node_count) return 0;
    if (!c->sorted) qsort(c->nodes, (size_t)c->node_count, sizeof *c->nodes, by_id);
    c->sorted = true;
    const Node *known = bsearch(&wanted, c->nodes, (size_t)c->node_count, sizeof *c->nodes, by_id);
    return known ? known->mark : 0;
}

void cupti_graph_node(Opened *c, CUpti_CallbackId id, const CUpti_ResourceData *data) {
    const CUpti_GraphData *graph = data->resourceDescriptor;
    uint64_t node = 0, original = 0;
    if (!graph || c->GetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS) return;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
        if (c->capture < 0) return; // not ours; or a node of an executable graph, which is reported as a copy
        int64_t mark = c->depth && c->depth <= MARKS_MOST ? c->marks[c->depth - 1] : c->capture;
        set_node(c, node, mark > c->capture ? mark - c->capture : 0);
        return;
    }
    if (c->GetGraphNodeId(graph->originalNode, &original) != CUPTI_SUCCESS) return;
    const Node *known = find_node(c, original);
    if (known && original != node) set_node(c, node, known->mark);
}

void cupti_capture(void *base, int64_t record) {
    Opened *c = base;
    c->capture = record;
}

void cupti_replay(void *base, int64_t record, int64_t kernels) {
    Opened *c = base;
    c->launches += kernels;
    c->base.mark(c, record);
}

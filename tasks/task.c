#include "tasks/task.h"

#include <assert.h>

static const TaskRow *const all[] = {
#define TASK(name) &task_##name,
#include "tasks/tasks.def"
#undef TASK
};

const TaskRow *task_find(const Config *config, const TrainOptions *options) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->trains == config->architecture->task && (!all[i]->takes || all[i]->takes(options)))
            return all[i];
    assert(!"a kind of model without a task");
    return NULL;
}

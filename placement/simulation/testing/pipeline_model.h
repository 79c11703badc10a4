// Step models of plain pipelines, for tests: a chain of stages with given costs.
#ifndef WEFT_PLACEMENT_SIMULATION_TESTING_PIPELINE_MODEL_H_
#define WEFT_PLACEMENT_SIMULATION_TESTING_PIPELINE_MODEL_H_

#include <string>
#include <vector>

#include "graph/schedule/action_list.h"
#include "graph/schedule/schedule_simulator.h"
#include "placement/simulation/step_model.h"

namespace weft::testing {

// What SimulateSchedule simulates with the same lists and `options` (costs, latency, credits; chain
// of channels): one rank per list, a message "activation" or "gradient" between neighbouring stages
// and the micro-batch's next. `bytes` of each message over a link of its own.
StepModel PipelineModel(const std::vector<ActionList>& lists, const ScheduleOptions& options,
                        int64_t bytes = 0, double bytes_per_second = 0);

// The lists of all ranks of a pipeline, by the schedule's name.
std::vector<ActionList> PipelineLists(const std::string& schedule, int ranks, int micro_batches,
                                      int chunks = 1);

}  // namespace weft::testing

#endif  // WEFT_PLACEMENT_SIMULATION_TESTING_PIPELINE_MODEL_H_

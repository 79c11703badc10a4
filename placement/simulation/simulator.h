// Simulates a StepModel in virtual time: a discrete-event loop over compute and communication
// streams, channels with credits, links and collectives. A pure function; the same input gives the
// same events in the same order.
//
// Each rank simulates its actions in order, step after step, as the executor does: no rank waits
// for the others between two steps. Its communication stream runs the jobs that signals have
// allowed, in order, beside that. A send never waits for its receiver, but for one of the channel's
// credits (graph/schedule/channel_credits.h).
#ifndef WEFT_PLACEMENT_SIMULATION_SIMULATOR_H_
#define WEFT_PLACEMENT_SIMULATION_SIMULATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/simulation/simulation.h"
#include "placement/simulation/step_model.h"

namespace weft {

// InvalidArgument for a model or script that does not fit (StepModel::Check), and for a deadlock:
// ranks that wait for each other for ever though none has stopped; it names who waits for what.
absl::StatusOr<Simulation> SimulateStep(const StepModel& model, const SimulationOptions& options);

// A Chrome trace (chrome://tracing, Perfetto): a process per rank, a thread per stream, times in
// microseconds.
std::string TimelineJson(const StepModel& model, const std::vector<TimelineSpan>& timeline);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_SIMULATOR_H_

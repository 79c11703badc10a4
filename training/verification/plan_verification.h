// Compares the values of a plan with those of one process, and finds the first operator that
// differs.
#ifndef WEFT_TRAINING_VERIFICATION_PLAN_VERIFICATION_H_
#define WEFT_TRAINING_VERIFICATION_PLAN_VERIFICATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "training/job/job.h"

namespace weft {

// What counts as a difference.
struct PlanVerificationOptions {
  // Two values are equal when no element differs by more than tolerance x the largest magnitude in
  // the expected tensor (+ 1e-6: sums that cancel to nothing).
  double tolerance = 1e-4;
};

// One value that differs.
struct ValueDifference {
  std::string node;   // of the rank's graph; of a sum over micro-batches: what it sums
  std::string op;     // "AllReduce", ...; "Accumulate" for such a sum, "Variable" for a variable
                      // after the step that differs though its update did not
  std::string value;  // the logical value
  int rank = 0;
  int micro_batch = -1;  // -1 = once per step
  std::string shape;     // of the rank's part, "[3,4] of [3,8]"
  double largest = 0;    // difference; infinity for another shape or a NaN
  double allowed = 0;
};

// The result of VerifyPlan: how much was compared, and the first difference.
struct VerifyReport {
  int64_t compared = 0;  // parts of values
  int64_t left_out = 0;  // that have no counterpart, or lie otherwise over the data axis
  int64_t different = 0;
  // Largest difference in units of what is allowed; below 1 when the plan is right.
  double worst = 0;
  std::optional<ValueDifference> first;
};

// The job in one process that a plan is compared with: the same micro-batches and reduction, or one
// micro-batch where the plan computes with the whole batch (values of micro-batches are left out
// then).
absl::StatusOr<PreparedJob> PrepareSingle(const Graph& model, const TrainingSpec& training,
                                          const Plan& plan, std::shared_ptr<const DataSet> data);

// Runs the first step of both jobs on workers in this process, with every value reported
// (training/verification/value_capture.h), and compares forward values, gradients, sums and updates
// in the order of the single process, a value before its conversions and its copies on other
// stages; then the variables. What a rank holds is compared with its part of the whole value: a
// shard with the shard, and the sum over the ranks where it is Partial. Operators that only the
// plan has (an expansion) are seen through the next common value. Holds every value of one step in
// memory.
absl::StatusOr<VerifyReport> VerifyPlan(FileSystem& files, PreparedJob planned, PreparedJob single,
                                        const PlanVerificationOptions& options);

}  // namespace weft

#endif  // WEFT_TRAINING_VERIFICATION_PLAN_VERIFICATION_H_

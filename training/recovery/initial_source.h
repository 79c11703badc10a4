// InitialSource: the state of a job before its first step.
#ifndef WEFT_TRAINING_RECOVERY_INITIAL_SOURCE_H_
#define WEFT_TRAINING_RECOVERY_INITIAL_SOURCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "training/checkpoint/state_source.h"
#include "training/job/job_spec.h"

namespace weft {

// The initial values of the variables that the job's steps change; zeros where the graph has none.
// Borrows the job's graphs.
class InitialSource final : public StateSource {
 public:
  explicit InitialSource(const PreparedJob& job);
  int64_t step() const override { return 0; }
  std::string text() const override { return "the beginning of the run"; }
  std::vector<std::string> names() const override;
  absl::StatusOr<Tensor> Read(const std::string& name) override;

 private:
  struct Initial {
    const Variable* variable = nullptr;
    const ValueType* type = nullptr;
  };
  std::map<std::string, Initial> variables_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_INITIAL_SOURCE_H_

// StepReport: what a rank says of a step that it has done.
#ifndef WEFT_DISTRIBUTED_STEP_REPORT_H_
#define WEFT_DISTRIBUTED_STEP_REPORT_H_

#include <cstdint>
#include <map>
#include <string>

#include "tensor/tensor.h"

namespace weft {

// Times are in seconds.
struct StepReport {
  int64_t step = 0;
  std::map<std::string, Tensor> values;  // Partition::reports
  double seconds = 0;
  double input_seconds = 0;   // waiting for data
  double waited_seconds = 0;  // for peers, and in collectives with them
  double update_seconds = 0;  // computing after the last micro-batch (StepResult::update_seconds)
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_STEP_REPORT_H_

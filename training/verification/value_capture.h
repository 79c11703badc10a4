// Makes a rank's partition report all its values, to compare two ways of running a step.
#ifndef WEFT_TRAINING_VERIFICATION_VALUE_CAPTURE_H_
#define WEFT_TRAINING_VERIFICATION_VALUE_CAPTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/partition.h"

namespace weft {

// One reported value.
struct ValueCapture {
  enum class Kind : uint8_t {
    kBegin,  // a variable that another stage sent
    kMicro,  // made once per micro-batch, by `node`
    kSum,    // the rank's own sum over micro-batches [first, last)
    kStep,   // made once per step, by `node`
  };
  Kind kind = Kind::kMicro;
  std::string report;  // its name in StepReport::values
  std::string value;   // its name in the rank's graph; of a sum: the name of its term there
  std::string node;
  std::string op;
  bool received = false;  // the node receives it from another stage
  int first = -1;         // micro-batches, in the job's list
  int last = -1;
  int64_t samples = 0;  // of the micro-batch
};

// Every floating-point value becomes a report: those of a micro-batch as sums over it alone. The
// numbers stay what they were; memory does not, since nothing is overwritten any more. In the order
// in which the rank makes them, micro-batch by micro-batch.
std::vector<ValueCapture> CaptureValues(Partition& partition);

}  // namespace weft

#endif  // WEFT_TRAINING_VERIFICATION_VALUE_CAPTURE_H_

// LossDetection: how soon a coordinator takes a worker that does not answer for lost.
#ifndef WEFT_DISTRIBUTED_LOSS_DETECTION_H_
#define WEFT_DISTRIBUTED_LOSS_DETECTION_H_

#include "absl/time/time.h"

namespace weft {

// A worker is asked every `beat`. It is lost after `patience` questions in a row without an answer,
// which is noticed (patience + 1) * beat after its last answer at the latest. A process that has
// died is noticed at once, by its connection.
struct LossDetection {
  absl::Duration beat = absl::Seconds(1);
  int patience = 3;
};

// Within a second. A worker that is starved of its processor for 0.7 s may be taken for lost.
inline constexpr LossDetection kFastDetection = {absl::Milliseconds(180), 4};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_LOSS_DETECTION_H_

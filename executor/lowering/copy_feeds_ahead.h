// Pass "feeds": gives the rows of inputs a place to be copied to ahead of time. Internal to
// executor/.
//
// Input   a program whose other buffers are as they will be, without lifetimes.
// Output  the same; where the host cannot reach the device's memory, and the inputs of a
// micro-batch
//         are large enough, each input has one more buffer (lowered::Fill::ahead), as large as its
//         rows in the largest micro-batch.
// Laws    All or no inputs have it. It is part of the arena and nothing else lies there in the
// whole
//         step: rows of the next micro-batch, or of the next step's first one, are copied there
//         while the device computes. A fill then copies them within the device, so that kernels
//         find them at one address in each step, and what was recorded of these stays true.
#ifndef WEFT_EXECUTOR_LOWERING_COPY_FEEDS_AHEAD_H_
#define WEFT_EXECUTOR_LOWERING_COPY_FEEDS_AHEAD_H_

#include <cstdint>

#include "executor/lowering/lowering_program.h"

namespace weft {

// `min_bytes`: what the inputs of the largest micro-batch must have for that, all together.
LoweringProgram CopyFeedsAhead(LoweringProgram program, int64_t min_bytes);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_COPY_FEEDS_AHEAD_H_

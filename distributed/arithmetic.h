// ArithmeticOf: what the last digit of a worker's results depends on, besides its program.
#ifndef WEFT_DISTRIBUTED_ARITHMETIC_H_
#define WEFT_DISTRIBUTED_ARITHMETIC_H_

#include <string>

#include "distributed/nccl/worker_card.h"
#include "platform/file_system.h"
#include "tensor/device.h"

namespace weft {

// Two workers with the same text, of one version of Weft, compute the same bits from the same bits.
// It has the kind of device, of a card its name and driver, then what oneDNN chooses the order of
// sums by: "cpu AVX2, 2 threads, AMD EPYC 7B13". `threads` are those of the program. `files`: of
// /proc/cpuinfo, which takes a millisecond to read.
std::string ArithmeticOf(const Device& device, const WorkerCard& card, int threads,
                         FileSystem& files);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_ARITHMETIC_H_

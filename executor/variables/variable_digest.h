// DigestVariables: 64 bits that tell whether a variable has the same bits on two ranks.
#ifndef WEFT_EXECUTOR_VARIABLES_VARIABLE_DIGEST_H_
#define WEFT_EXECUTOR_VARIABLES_VARIABLE_DIGEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/variables/variable_store.h"
#include "tensor/device.h"

namespace weft {

// Of each variable, in the order of `names`: XXH3-64 of the XXH3-64s of its pieces of 4 MiB
// (platform/checksum.h). It depends on the bytes of this rank's part alone, not on the device.
// Reads each byte once, on one thread: some 10 GB/s from memory that the host reaches; else a piece
// at a time is copied to the host. `device`: the store's. No step runs meanwhile. NotFound for an
// unknown name.
absl::StatusOr<std::vector<uint64_t>> DigestVariables(Device& device, VariableStore& variables,
                                                      const std::vector<std::string>& names);

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_VARIABLE_DIGEST_H_

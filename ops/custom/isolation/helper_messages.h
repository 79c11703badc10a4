// What a worker and the helper process of an op library say to each other.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_HELPER_MESSAGES_H_
#define WEFT_OPS_CUSTOM_ISOLATION_HELPER_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "ops/custom/isolation/message_bytes.h"
#include "ops/custom_op.h"

namespace weft {

//   worker                          helper
//     │           kDescription ◀──────│  the library is loaded; or kRefused, or kThrew
//     │──▶ kMapping                   │  memory that both see, with its descriptor
//     │──▶ kCall                      │  a function of the library begins
//     │              kQuestion ◀──────│  it asks the host for something ...
//     │──▶ kAnswer                    │  ... any number of times
//     │                  kDone ◀──────│  it has returned
enum class HelperFrame : uint8_t {
  kMapping = 1,
  kCall,
  kAnswer,
  kDescription,
  kRefused,  // the code of a status, then its text
  kThrew,    // the text of an exception that nobody caught: the helper ends
  kQuestion,
  kDone,
};

// The functions of an op's descriptor.
enum class LibraryFunction : uint8_t { kInfer, kCompute, kGradient, kFlops };
constexpr int kLibraryFunctions = 4;
// "Compute"
std::string_view LibraryFunctionName(LibraryFunction function);

// The functions of the host's table that the helper passes on to the worker. It answers those about
// the node, and about the tensors of a kernel, from the call.
enum class HostFunction : uint8_t {
  kFail,
  kInputType,
  kOutputType,
  kInputValue,
  kSetOutputType,
  kInput,
  kOutput,
  kStep,
  kInputId,
  kOutputId,
  kOutputGradient,
  kNeedsInputGradient,
  kSetInputGradient,
  kAddNode,
  kConstant,
};
constexpr int kHostFunctions = 15;

// A tensor whose elements lie in the shared memory, `place` bytes behind its begin; < 0: null.
struct SharedTensor {
  int32_t dtype = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> global_dims;
  std::vector<int64_t> offset;
  int64_t place = -1;

  // Bytes of its elements. `dims` are not negative.
  int64_t bytes() const;
  // Points into this object and into the memory at `begin`.
  WeftTensor At(void* begin) const;
};

struct CallMessage {
  LibraryFunction function = LibraryFunction::kInfer;
  uint32_t op = 0;      // its number in the library
  int32_t threads = 1;  // for parallel loops
  // By operand, whether the node has it.
  std::vector<uint8_t> inputs;
  std::vector<uint8_t> outputs;
  Attributes attributes;  // of the types that a library sees
  // For kCompute, by operand; of no meaning where the node lacks it.
  std::vector<SharedTensor> input_tensors = {};
  std::vector<SharedTensor> output_tensors = {};
};

void WriteTensor(const SharedTensor& tensor, MessageWriter& message);
SharedTensor ReadTensor(MessageReader& message);
// WEFT_INT to WEFT_FLOATS; attributes of other types are left out.
void WriteAttributes(const Attributes& attributes, MessageWriter& message);
Attributes ReadAttributes(MessageReader& message);

std::string EncodeCall(const CallMessage& call);
// InvalidArgument when it is none.
absl::StatusOr<CallMessage> DecodeCall(std::string_view bytes);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_HELPER_MESSAGES_H_

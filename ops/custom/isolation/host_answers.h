// Answers what the function of an isolated library asks of the host.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_HOST_ANSWERS_H_
#define WEFT_OPS_CUSTOM_ISOLATION_HOST_ANSWERS_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ops/custom/isolation/helper_messages.h"
#include "ops/custom_op.h"

namespace weft {

// Copies elements to where the helper sees them, and returns their place. Errors: no memory.
using ElementSharer = absl::FunctionRef<absl::StatusOr<int64_t>(const void* data, int64_t bytes)>;

// The tensor as a message, without its place. `tensor` is one that the host has given.
SharedTensor DescribeTensor(const WeftTensor& tensor);

// Calls the function of `host` that `question` names, with its arguments, for `call`, and returns
// what the helper is told. `share` gets the elements of tensors that the answer has. The question
// may be anybody's: InvalidArgument for what is none.
absl::StatusOr<std::string> AnswerQuestion(const WeftHost& host, WeftCall& call,
                                           std::string_view question, ElementSharer share);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_HOST_ANSWERS_H_

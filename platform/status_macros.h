// WEFT_RETURN_IF_ERROR and WEFT_ASSIGN_OR_RETURN.
#ifndef WEFT_PLATFORM_STATUS_MACROS_H_
#define WEFT_PLATFORM_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Both macros return from the enclosing function, which must return absl::Status or
// absl::StatusOr<T>.

// Evaluates `expression` (an absl::Status) once and returns it when it is an error.
//   WEFT_RETURN_IF_ERROR(graph.Verify());
#define WEFT_RETURN_IF_ERROR(...)                                          \
  do {                                                                     \
    ::absl::Status weft_status_of_expression = (__VA_ARGS__);              \
    if (!weft_status_of_expression.ok()) return weft_status_of_expression; \
  } while (false)

// Evaluates `expression` (an absl::StatusOr<T>) once; returns its status when it is an error, and
// otherwise moves the value into `lhs`, which may be a declaration.
//   WEFT_ASSIGN_OR_RETURN(const Shape shape, InferShape(node));
// A declaration with a comma in its type needs an alias: macros split their arguments at commas.
#define WEFT_ASSIGN_OR_RETURN(lhs, ...) \
  WEFT_ASSIGN_OR_RETURN_IMPL_(WEFT_STATUS_CONCAT_(weft_status_or_, __LINE__), lhs, (__VA_ARGS__))

#define WEFT_ASSIGN_OR_RETURN_IMPL_(status_or, lhs, expression) \
  auto status_or = expression;                                  \
  if (!status_or.ok()) return std::move(status_or).status();    \
  lhs = *std::move(status_or)

#define WEFT_STATUS_CONCAT_(left, right) WEFT_STATUS_CONCAT_IMPL_(left, right)
#define WEFT_STATUS_CONCAT_IMPL_(left, right) left##right

#endif  // WEFT_PLATFORM_STATUS_MACROS_H_

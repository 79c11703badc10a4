#include "executor/interfaces/wait_info.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr char kWhat[] = "weft/wait.what";
constexpr char kWhere[] = "weft/wait.where";
constexpr char kWhom[] = "weft/wait.whom";

std::string Payload(const absl::Status& status, const char* type) {
  const absl::optional<absl::Cord> payload = status.GetPayload(type);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

absl::Status WithWaitInfo(absl::Status status, const WaitInfo& note) {
  if (status.ok() || status.GetPayload(kWhat).has_value()) return status;
  status.SetPayload(kWhat, absl::Cord(note.what));
  if (!note.where.empty()) status.SetPayload(kWhere, absl::Cord(note.where));
  if (!note.whom.empty()) status.SetPayload(kWhom, absl::Cord(note.whom));
  return status;
}

absl::Status WithWaitPlace(absl::Status status, const std::string& where) {
  if (status.GetPayload(kWhat).has_value() && !status.GetPayload(kWhere).has_value()) {
    status.SetPayload(kWhere, absl::Cord(where));
  }
  return status;
}

std::string WaitText(const absl::Status& status) {
  std::string text = Payload(status, kWhat);
  if (const std::string where = Payload(status, kWhere); !where.empty()) {
    absl::StrAppend(&text, " (", where, ")");
  }
  if (const std::string whom = Payload(status, kWhom); !whom.empty()) {
    absl::StrAppend(&text, " ", whom);
  }
  return text;
}

absl::Status WithWaitText(absl::Status status, const std::string& text) {
  return text.empty() ? status : WithWaitInfo(std::move(status), {text, "", ""});
}

}  // namespace weft

#include "distributed/keys/openssl.h"

#include <openssl/err.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

absl::Status OpenSslError(std::string_view doing) {
  const unsigned long error = ERR_peek_last_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", absl::string_view(doing.data(), doing.size()),
                                          ": ",
                                          reason == nullptr ? "OpenSSL gave no reason" : reason));
}

OpenSsl<BIO> ReadingBio(std::string_view bytes) {
  return OpenSsl<BIO>(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

std::string BytesOf(BIO& written) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(&written, &data);
  return size <= 0 ? std::string() : std::string(data, static_cast<size_t>(size));
}

}  // namespace weft

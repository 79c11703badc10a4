#include "distributed/keys/host_and_port.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(HostAndPortTest, SplitsAtTheLastColonAndTakesBracketsOff) {
  const struct {
    const char* address;
    const char* host;
    const char* port;
  } cases[] = {{"10.0.0.8:4000", "10.0.0.8", "4000"},
               {"alpha:0", "alpha", "0"},
               {"[::1]:4000", "::1", "4000"},
               {"::1:4000", "::1", "4000"},
               {"alpha", "alpha", ""},
               {":4000", "", "4000"},
               {"[]:1", "", "1"},
               {"", "", ""}};
  for (const auto& one : cases) {
    const HostAndPort parts = SplitAddress(one.address);
    EXPECT_EQ(parts.host, one.host) << one.address;
    EXPECT_EQ(parts.port, one.port) << one.address;
  }
}

}  // namespace
}  // namespace weft

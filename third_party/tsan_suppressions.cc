// Debian compiles gRPC, OpenSSL, Abseil and oneDNN without ThreadSanitizer. It sees their calls of
// memmove, eventfd and the like, but none of the atomics that order them, and takes that for races.
// Our code is called by none of these libraries' frames: completion queues return to threads of
// ours.
extern "C" const char* __tsan_default_suppressions();

const char* __tsan_default_suppressions() {
  return "race:^grpc::\n"  // templates of gRPC, which are compiled with ours
         "race:libgrpc.so\n"
         "race:libgrpc++.so\n"
         "race:libgpr.so\n"
         "race:libupb.so\n"
         "race:libssl.so\n"
         "race:libcrypto.so\n"
         "race:libdnnl.so\n"
         "race:libabsl_status.so\n"
         "race:libabsl_strings.so\n"
         "race:libabsl_cord.so\n"
         "race:libabsl_cord_internal.so\n"
         "race:libabsl_time.so\n"
         "race:libabsl_graphcycles_internal.so\n"
         "race:libabsl_random_internal_pool_urbg.so\n";
}

// dingfeed-forward layers  one› body, and a head t#hat uses
// the}
galvatronWparamegalvatrnn.2.up" : tensor<4x